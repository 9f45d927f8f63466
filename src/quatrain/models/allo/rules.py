"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule
from quatrain.models.allo.config import AlloConfig, AlloUserEnvConfig

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
# Of walks whose states are not counted (bins: null).
HELD_OUT_LOWER = {
    "untrained_autocorrelation": "untrained network",
    "permuted_autocorrelation": "permuted pairs",
}
HELD_OUT_GATED = (
    Rule("autocorrelation", "higher", 0.02, {"observations": 0.85}, HELD_OUT_LOWER, most=1.0).means(
        "how much of the learned functions a held-out walk keeps from a state to a later one, mean "
        "over their span without the constant: 1 is all, 0 what permuted pairs keep"
    ),
    Rule("held_out_orthogonality", "lower", 0.1, least=0.0).means(
        "greatest deviation of the components' products from those of orthonormal ones, on "
        "held-out states"
    ),
)
CONSISTENCY = Rule("consistency", "higher", 0.05, {"observations": 0.95}, most=1.0).means(
    "mean cosine of the principal angles between what two seeds learn, without the constant: 1 is "
    "the same space"
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    if config is AlloUserEnvConfig:
        return (*GATED, *HELD_OUT_GATED)
    if not isinstance(config, AlloConfig) or config.knows_truth:
        return GATED
    return (*HELD_OUT_GATED, CONSISTENCY) if config.seeds > 1 else HELD_OUT_GATED
