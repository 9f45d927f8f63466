"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

# `make promote MODELS=sketch` stores the score; then one worse by 0.02 fails.
GATED = (
    Rule("rmse", "lower", 0.02, {"default": 0.2}, {"constant_rmse": "best constant"}).means(
        "distance of the learned from the true function; 0 is perfect"
    ),
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return GATED
