"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from quatrain.baselines import Gated

REFERENCES = {
    "random": "random actions",
    "constant": "best constant action",
    "untrained": "untrained network",
}
GATED = (
    Gated(
        "return_mean",
        "higher",
        # Small, because rewards of users have any scale.
        0.01,
        {"gymnasium": 475.0},
        lower_references=tuple(f"{name}_return" for name in REFERENCES),
        meaning="reward of a held-out episode, undiscounted, mean over episodes",
        names={f"{name}_return": words for name, words in REFERENCES.items()},
    ),
)
