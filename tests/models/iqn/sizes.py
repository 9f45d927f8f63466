"""Sizes of iqn in tests, which tests/conftest.py reads."""

# Changes to params.yaml that make a run take a second and still learn something.
SMALL = {
    "env": {
        "worlds": 4,
        "height": 6,
        "width": 6,
        "agents": 2,
        "max_turns": 10,
        "spawn_probability": 0.05,
    },
    "collect": {"turns": 20, "held_out_worlds": 64},
    "network": {"frames": 2, "hidden": 24, "cosines": 8},
    "train": {
        "turns": 60,
        "turns_per_cycle": 10,
        "updates_per_cycle": 20,
        "batch_size": 32,
        "capacity": 400,
        "learning_rate": 3e-3,
        "target": {"rate": 0.1},
        "record_every": 40,
        "evaluate_every": 40,
        "evaluation_worlds": 8,
        "loss": {"quantiles": 4, "target_quantiles": 4, "discount": 0.9},
        "acting": {"quantiles": 4, "epsilon": {"over_transitions": 200}},
    },
}
# On top of it, twelve yields (`small_project.YIELDS`) at which a run can be cut off.
QUICK = {"train": {"turns": 120, "record_every": 20}}
# Scores that reach every goal.
SCORES = (
    {"return_mean": 105.0, "share": 0.98, "score": 0.96, "constant_return": -36.0}
    | {"random_return": 51.0, "free_random_return": 63.0}
    | {"oracle_view_return": 107.0, "oracle_full_return": 108.0}
)
