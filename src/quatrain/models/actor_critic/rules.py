"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

REFERENCE_NAMES = {
    "random_return": "random actions",
    "constant_return": "best constant action",
    "feedback_return": "hand-written controller",
}
GATED = (
    Rule(
        "return_mean",
        "higher",
        0.3,
        {},
        ("random_return", "constant_return"),
        ("feedback_return",),
        meaning="reward of an episode with a held-out colony, undiscounted, mean over colonies",
        names=REFERENCE_NAMES,
    ),
    Rule(
        "margin_over_constant",
        "higher",
        0.1,
        {"default": 0.25},
        meaning="gain of that return on the best constant action: 0 is none, 1 is twice as much",
    ),
    Rule(
        "fraction_of_feedback",
        "higher",
        0.03,
        {"default": 0.95},
        meaning="that return as a share of the hand-written controller's",
    ),
    Rule(
        "success_rate",
        "higher",
        0.02,
        {},
        meaning="share of held-out colonies that reach the goal",
        least=0.0,
        most=1.0,
    ),
    Rule(
        "size_rmse",
        "lower",
        1.0,
        {},
        meaning="how many cells a colony is off its target size, root mean square",
        least=0.0,
    ),
)


REFERENCES = {
    "random": "random actions",
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
        {"gymnasium": 5.2},
        lower_references=tuple(f"{name}_score" for name in REFERENCES),
        meaning="distance of the held-out return from that of the best policy without learning, in "
        "standard deviations of random actions', as log2(1 + distance): one more for each doubling",
        names={f"{name}_score": words for name, words in REFERENCES.items()},
    ),
)


def gated(config: Any = None) -> tuple[Rule, ...]:
    return USER_ENV_GATED if getattr(config, "brings_env", False) else GATED
