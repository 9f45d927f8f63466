"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from typing import Any

from quatrain.baselines import Rule

REFERENCES = {
    "random": "random actions",
    "constant": "best constant action",
    "untrained": "untrained network",
}
# The size of rewards differs between environments: `score` alone is judged. Its tolerance is a
# factor of two in the distance from policies without learning, as other seeds may make it. The goal
# is the preset's CartPole-v1's: about the return of 475 at which Gymnasium counts it as solved.
GATED = (
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
    return GATED
