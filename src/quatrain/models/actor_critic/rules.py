"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule
from quatrain.envs.host.rules import score_rule

LOWER = {"random_return": "random actions", "constant_return": "best constant action"}
UPPER = {"feedback_return": "hand-written controller"}
GATED = (
    Rule("return_mean", "higher", 0.3, {}, LOWER, UPPER).means(
        "reward of an episode with a held-out colony, undiscounted, mean over colonies"
    ),
    Rule("margin_over_constant", "higher", 0.1, {"default": 0.25}).means(
        "gain of that return on the best constant action: 0 is none, 1 is twice as much"
    ),
    Rule("fraction_of_feedback", "higher", 0.03, {"default": 0.95}).means(
        "that return as a share of the hand-written controller's"
    ),
    Rule("success_rate", "higher", 0.02, least=0.0, most=1.0).means(
        "share of held-out colonies that reach the goal"
    ),
    Rule("size_rmse", "lower", 1.0, least=0.0).means(
        "how many cells a colony is off its target size, root mean square"
    ),
)
USER_ENV_GATED = (score_rule(5.2),)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return USER_ENV_GATED if getattr(config, "brings_env", False) else GATED
