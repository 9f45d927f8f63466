"""Sizes of active_dynamics in tests, which tests/conftest.py reads."""

# Changes to params.yaml that make a run take a second and still learn something.
SMALL = {
    "seeds": 2,
    "env": {"observation": {"channels": 8}},
    "collect": {"warmup": 10, "held_out_rollouts": 8, "starts": 8},
    "network": {
        "rbf": {"side": 5, "length": 0.9, "prior_field_sd": 1.0},
        "seq_vae": {"hidden": 8, "head": 7, "dynamics_hidden": [6]},
    },
    "train": {
        "arms": ["active", "random"],
        "transitions": 60,
        "record_every": 20,
        "checkpoints": 5,
        "planner": {"candidates": 8, "iterations": 1, "horizon": 3, "elites": 3, "keep": 1},
        "seq_vae": {
            "samples": 2,
            "horizons": 3,
            "window": 8,
            "burn_in": 2,
            "batch_size": 4,
            "min_windows": 2,
            "learning_rate": 0.02,
            "anneal": 5,
        },
    },
    "evaluate": {"elbo_samples": 4},
}
# On top of it, twelve yields (`small_project.YIELDS`) at which a run can be cut off.
QUICK = {"train": {"record_every": 5}}
# Scores that reach every goal.
SCORES = (
    {"field_nrmse.active": 0.08, "transition_ratio.random": 8.0}
    | {"displacement_r2_20.active": 0.9, "coverage_90.active": 0.87}
    | {"zero_field": 1.0, "affine_field": 0.43, "projection_floor": 0.0035}
    | {"teleport_reference": 0.0755}
)
