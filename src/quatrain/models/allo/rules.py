"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

LOWER_REFERENCES = ("floor_untrained", "floor_random", "floor_constant")
REFERENCE_NAMES = {
    "ceiling_truth": "true vectors",
    "floor_untrained": "untrained network",
    "floor_random": "random numbers",
    "floor_constant": "constant",
}
GATED = (
    Rule(
        "cosine_mean",
        "higher",
        0.005,
        {"default": 0.99, "large": 0.997},
        LOWER_REFERENCES,
        ("ceiling_truth",),
        meaning="agreement of the learned with the true eigenvectors, mean over components: "
        "1 is the truth, 0 random numbers",
        names=REFERENCE_NAMES,
        most=1.0,
    ),
    Rule(
        "cosine_min",
        "higher",
        0.03,
        {},
        meaning="the same agreement of the component that was learned worst",
        most=1.0,
    ),
    Rule(
        "orthogonality",
        "lower",
        0.1,
        {"large": 0.1},
        meaning="greatest overlap of two components: 0 if all differ, 1 if two are the same vector",
        least=0.0,
    ),
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return GATED
