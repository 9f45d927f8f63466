"""Sizes of allo in tests, which tests/conftest.py reads."""

# Changes to params.yaml that make a run take a second and still learn something.
SMALL = {
    "collect": {"num_envs": 13, "steps_per_env": 60, "held_out_fraction": 0.2},
    "network": {"d": 3, "hidden": 16, "layers": 2},
    "train": {
        "batch_size": 32,
        "steps": 60,
        "record_every": 20,
        "evaluate_every": 20,
        "learning_rate": 0.01,
    },
}
# On top of it, twelve yields (`small_project.YIELDS`) at which a run can be cut off.
QUICK = {"train": {"steps": 240, "evaluate_every": 40}}
# Scores that reach every goal.
SCORES = (
    {"cosine_mean": 0.995, "cosine_min": 0.98, "cosine/2": 0.996, "cosine/10": 0.994}
    | {"floor_untrained": 0.12, "floor_random": 0.08, "floor_constant": 0.09}
    | {"orthogonality": 0.05, "ceiling_truth": 1.0}
)
