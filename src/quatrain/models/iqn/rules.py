"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

LOWER_REFERENCES = ("random_return", "free_random_return", "constant_return")
UPPER_REFERENCES = ("oracle_view_return", "oracle_full_return")
REFERENCE_NAMES = {
    "constant_return": "always up",
    "random_return": "random",
    "free_random_return": "random, unblocked",
    "oracle_view_return": "oracle, own view",
    "oracle_full_return": "oracle, full view",
}
GATED = (
    Rule(
        "return_mean",
        "higher",
        3.0,
        {},
        LOWER_REFERENCES,
        UPPER_REFERENCES,
        meaning="reward that an agent collects in an episode of a held-out world, mean over "
        "agents and worlds",
        names=REFERENCE_NAMES,
    ),
    Rule(
        "share",
        "higher",
        0.03,
        {"default": 0.95, "large": 1.0},
        meaning="that return as a share of what an oracle with the same view collects",
    ),
    Rule(
        "score",
        "higher",
        0.06,
        {},
        meaning="the return on a scale from random actions (0) to that oracle (1)",
    ),
)
# Policies that learned nothing and play the same episodes of a user's environment.
USER_ENV_NAMES = {
    "random": "random",
    "constant": "best constant action",
    "untrained": "untrained network",
}
# The size of rewards differs between environments: `score` alone is judged. Its tolerance is a
# factor of two in the distance from policies without learning, as other seeds may make it. The goal
# is the preset's CartPole-v1's: about the return of 475 at which Gymnasium counts it as solved.
USER_ENV_GATED = (
    Rule(
        "score",
        "higher",
        1.0,
        {"gymnasium": 5.15},
        tuple(f"{name}_score" for name in USER_ENV_NAMES),
        meaning="distance of the held-out return from that of the best policy without learning, in "
        "standard deviations of random actions', as log2(1 + distance): one more for each doubling",
    ),
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return USER_ENV_GATED if getattr(config, "brings_env", False) else GATED
