"""Sizes of sketch in tests, which tests/conftest.py reads."""

# Changes to params.yaml that make a run take a second and still learn something.
SMALL = {
    "collect": {"samples": 300},
    "network": {"hidden": 12},
    "train": {"steps": 60, "batch_size": 16, "learning_rate": 0.02, "record_every": 20},
}
# On top of it, twelve yields at which a run can be cut off.
QUICK = {"train": {"steps": 240}}
# Scores that reach every goal.
SCORES = {"rmse": 0.05, "constant_rmse": 0.5}
