"""what the loop around learning may take"""

REVISION = "b8c7e238"
"""The last one before this loop was made faster."""
GOALS = {
    "`make repro` from nothing, wall": "at most 0.65 of before",
    "`make repro` from nothing, CPU over its trainings": "at most 1.3",
    "`dvc exp run -S": "at most 8 s",
    "evaluate": "at most 0.15",
    "second start": "at most 2.5 s",
    "predict of 1 ": "at most 300 \u00b5s",
    "predict of 10,000 ": "at most 1 \u00b5s",
    "PPO": "at most 0.7 of stable-baselines3",
    "steps in": "at most 0.5",
}
"""Beginning of a row's work -> its goal."""


def goal_of(work: str) -> str:
    return next(goal for beginning, goal in GOALS.items() if work.startswith(beginning))
