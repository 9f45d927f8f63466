"""how a baseline judges a policy in a user's environment; reading this loads no framework."""

from quatrain.baselines import Rule

# Policies that learned nothing and play the same episodes, and what plots call them.
REFERENCES = {
    "random": "random actions",
    "constant": "best constant action",
    "untrained": "untrained network",
}


RETURN = Rule("return_mean", "higher", 0.0).means("undiscounted return of held-out episodes")


def score_rule(cartpole_goal: float) -> Rule:
    """Returns the rule of `score`, which alone is judged: the size of rewards differs between
    environments.

    Its tolerance is a factor of two in the distance from policies without learning, as other seeds
    may make it. The goal is that of the preset gymnasium, CartPole-v1: a return of about
    475, at which Gymnasium counts it as solved.
    """
    lower = {f"{name}_score": words for name, words in REFERENCES.items()}
    return Rule("score", "higher", 1.0, {"gymnasium": cartpole_goal}, lower).means(
        "distance of the held-out return from that of the best policy without learning, in "
        "standard deviations of random actions', as log2(1 + distance): one more for each doubling"
    )
