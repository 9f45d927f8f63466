"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

LOWER = {
    "floor_untrained": "untrained network",
    "floor_random": "random numbers",
    "floor_constant": "constant",
}
UPPER = {"ceiling_truth": "true vectors"}
REFERENCE_NAMES = UPPER | LOWER
GOALS = {"default": 0.99, "large": 0.997}
GATED = (
    Rule("cosine_mean", "higher", 0.005, GOALS, LOWER, UPPER, most=1.0).means(
        "agreement of the learned with the true eigenvectors, mean over components: "
        "1 is the truth, 0 random numbers"
    ),
    Rule("cosine_min", "higher", 0.03, most=1.0).means(
        "the same agreement of the component that was learned worst"
    ),
    Rule("orthogonality", "lower", 0.1, {"large": 0.1}, least=0.0).means(
        "greatest overlap of two components: 0 if all differ, 1 if two are the same vector"
    ),
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return GATED
