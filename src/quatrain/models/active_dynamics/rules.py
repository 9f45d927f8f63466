"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

LOWER = {"zero_field": "no field", "affine_field": "best affine field"}
UPPER = {"projection_floor": "best of these features", "teleport_reference": "data from any state"}
REFERENCE_NAMES = LOWER | UPPER
GATED = (
    Rule("field_nrmse.active", "lower", 0.02, {}, LOWER, UPPER, least=0.0).means(
        "error of the field learned with planned actions, relative to the field's size: "
        "0 is perfect, 1 as bad as no field"
    ),
    Rule("transition_ratio.random", "higher", 1.5, {"default": 5.0}, least=0.0).means(
        "how many times as many transitions random actions need for the same error"
    ),
    Rule("displacement_r2_20.active", "higher", 0.02, most=1.0).means(
        "share of the field's displacement over 20 transitions that is predicted (R²): 1 is all"
    ),
    Rule("coverage_90.active", "near", 0.08, least=0.0, most=1.0).means(
        "share of the field within the learner's 90 % intervals: 0.9 is well calibrated"
    ),
)


# What a user's system is compared with.
REFERENCES = {"constant_velocity": "constant velocity", "linear_model": "linear model"}
CONSTANT_VELOCITY = {"innovation_nll_constant_velocity": "constant velocity"}


def user_env_gated(arm: str) -> tuple[Rule, ...]:
    """Returns the rules of a user's system: no score depends on the size of its states."""
    return (
        Rule(f"innovation_nll.{arm}", "lower", 0.5, {}, CONSTANT_VELOCITY).means(
            "surprise at held-out transitions, nats per state: one less is a third of the error"
        ),
        Rule(f"prediction_r2.{arm}", "higher", 0.05, {"gymnasium": 0.9}, most=1.0).means(
            "share of the displacement over several transitions that is predicted (R²): 1 is all"
        ),
        Rule(f"coverage_90.{arm}", "near", 0.08, least=0.0, most=1.0).means(
            "share of held-out velocities within the learner's 90 % intervals: 0.9 is well "
            "calibrated"
        ),
    )


def gated(config: Any = None) -> tuple[Rule, ...]:
    if not getattr(config, "brings_env", False):
        return GATED
    arm = getattr(config, "shown_arm", "active")
    return user_env_gated(arm if isinstance(arm, str) else "active")
