"""which scores of `evaluate` a baseline judges, and how; reading this loads no framework."""

from quatrain.baselines import Gated

# Policies that learned nothing and play the same episodes.
REFERENCE_POLICIES = ("random", "constant", "untrained")
LOWER_REFERENCES = tuple(f"{name}_score" for name in REFERENCE_POLICIES)
# References are compared by `score`, because the size of rewards differs between environments. The
# goal is that of the preset's CartPole-v1: the return at which Gymnasium counts it as solved.
GATED = (
    Gated("score", "higher", 0.5, {}, LOWER_REFERENCES),
    Gated("return_mean", "higher", 5.0, {"gymnasium": 475.0}),
)
