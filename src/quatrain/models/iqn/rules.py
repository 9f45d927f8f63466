"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule
from quatrain.envs.host.rules import score_rule

LOWER = {
    "constant_return": "always up",
    "random_return": "random",
    "free_random_return": "random, unblocked",
}
UPPER = {"oracle_view_return": "oracle, own view", "oracle_full_return": "oracle, full view"}
REFERENCE_NAMES = LOWER | UPPER
GATED = (
    Rule("return_mean", "higher", 3.0, {}, LOWER, UPPER).means(
        "reward that an agent collects in an episode of a held-out world, mean over agents and "
        "worlds"
    ),
    Rule("share", "higher", 0.03, {"default": 0.95, "large": 1.0}).means(
        "that return as a share of what an oracle with the same view collects"
    ),
    Rule("score", "higher", 0.06).means(
        "the return on a scale from random actions (0) to that oracle (1)"
    ),
)
USER_ENV_GATED = (score_rule(4.85),)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return USER_ENV_GATED if getattr(config, "brings_env", False) else GATED
