"""state, dataset, history -> figures of training, of the learned policy, and of its comparison with
reference policies.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig, Config
from quatrain.models.actor_critic.train import State
from quatrain.plots import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    RED,
    Figure,
    Level,
    Line,
    Panel,
    Picture,
    PolicyReturns,
    caption,
    curve,
    describe_seeds,
    house_style,
    in_order,
    learning_curve,
    returns_ecdf,
    update_panels,
)
from quatrain.progress import Evaluation, History

# Picture -> the question that it answers, and how; in the order of the story.
CAPTIONS = {
    "film": "How does the trained policy act? A held-out episode by its most likely actions, as "
    "the environment shows itself.",
    "growth": "What is to be done, and how does the trained policy do it? A colony of cells that "
    "it has never seen grows over a plate towards stiff ground (dark). In each step cells are "
    "deleted, and the others throw a child (orange). The policy decides how many and how far.",
    "learning_curve": "Does it learn? Return per episode while training, and afterwards in "
    "held-out episodes, beside policies that did not learn.",
    "returns": "How much does luck decide? Held-out episodes of all policies, by their return.",
    "laws": "What has it learned? What the policy does depending on what it sees, beside the "
    "hand-written controller, which it was never shown.",
    "slopes": "Does it hold elsewhere? All policies by the slope of the plate, also with slopes "
    "that training never had.",
    "updates": "Are the updates sound? How far they move the policy, and how good its values are.",
}
TRANSITIONS = "transitions of all environments"
RETURN = "return of an episode, undiscounted"
# Metric of updates -> the title of its panel, its unit, and how it is drawn.
UPDATES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "entropy": ("How random actions are", "entropy, nats", {}),
    "approx_kl": ("How far an iteration moves the policy", "KL, nats", {"limits": (0, None)}),
    "clip_fraction": ("Ratios that were clipped", "share", {"limits": (0, None)}),
    "explained_variance": ("How good values are", "explained variance", {"limits": (-0.25, 1)}),
    "loss_value": ("Error of values", "value loss", {"scale": "log"}),
    "grad_norm": ("Gradients before they are cut", "norm", {"limits": (0, None)}),
}
# Metric of updates -> the setting that limits it.
LEVELS = {"approx_kl": "target_kl", "grad_norm": "max_grad_norm"}
# Policy without learning -> what figures call it, and its colour.
REFERENCES = {
    "feedback": ("controller", BLUE),
    "constant": ("best constant action", BLACK),
    "random": ("random actions", GREY),
    "untrained": ("untrained network", BLUE),
}


@house_style
def plots(
    config: Config, state: State, dataset: Any, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures of one trained actor_critic; of several seeds means with 95 % intervals
    over seeds.
    """
    pictures: dict[str, Picture] = {
        "learning_curve": draw_learning_curve(config, history, evaluation.scores),
        "updates": draw_updates(config, history),
    }
    if isinstance(config, ActorCriticUserEnvConfig):
        from quatrain.models.actor_critic.user_env_scores import film

        pictures |= film(config, state, dataset)
        pictures["returns"] = draw_returns(*evaluation.outcomes)
    else:
        from quatrain.models.actor_critic import colony_plots

        pictures |= colony_plots.pictures(config, state, dataset, evaluation.outcomes)
    return in_order(pictures, CAPTIONS)


def draw_learning_curve(config: Config, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws the return during training, NaN before the first episode has ended, and beside it the
    held-out return among those of policies without learning.
    """
    exploring = curve(history, "return", config.seeds, "transitions")
    ended = curve(history, "episodes", config.seeds).values.cumsum(1) > 0
    values = np.where(ended, exploring.values, np.nan)
    lines = [Line(exploring._replace(values=values), ORANGE, "while exploring")]
    validation = "validation_return" in history
    if validation:
        validated = curve(history, "validation_return", config.seeds, "transitions")
        lines.append(Line(validated, RED, "validated"))
    levels = levels_of(scores)
    figure = learning_curve(lines, levels, 2, TRANSITIONS, RETURN)
    if validation:
        figure.axes[0].plot(validated.steps, validated.values.T, "o", color=RED, markersize=3)
    over = "seeds" if scores["seeds"] > 1 else "held-out episodes, not over seeds"
    caption(
        figure,
        "Orange: episodes that ended in an iteration, with actions drawn at random.",
        "Red: validation episodes, by which weights are chosen." if validation else "",
        describe_seeds(config.seeds),
        "Compare the learned policy with others on the right alone: there all begin alike, and no "
        "action is drawn.",
        f"Bar of the learned: its 95 % interval over {over}." if levels[-1].half else "",
    )
    return figure


def levels_of(scores: Mapping[str, float]) -> list[Level]:
    """Returns the held-out return of the learned policy, with its interval where there is one, and
    of policies without learning.
    """
    mean = scores["return_mean"]
    name = "return_mean" if scores["seeds"] > 1 else "return_mean_held_out"
    half = (scores.get(f"{name}_high", mean) - scores.get(f"{name}_low", mean)) / 2
    references = [
        Level(label, scores[f"{policy}_return"], color)
        for policy, (label, color) in REFERENCES.items()
        if f"{policy}_return" in scores
    ]
    return [*references, Level("learned", mean, RED, half)]


def draw_returns(learned: Sequence[Any], references: Mapping[str, Any]) -> Figure:
    """Draws which share of held-out episodes returns at most so much, for each policy."""
    policies = [PolicyReturns("learned", RED, np.stack([each.mean_returns for each in learned]))]
    for policy, episodes in references.items():
        policies.append(PolicyReturns(*REFERENCES[policy], episodes.mean_returns[None]))
    figure = returns_ecdf(policies, RETURN)
    count = len(learned[0].lengths)
    caption(figure, f"{count} held-out episodes of the learned policy; each begins with the same.")
    return figure


def draw_updates(config: Config, history: History) -> Figure:
    """Draws how far each iteration moves the policy, and how good its values are."""
    panels = []
    for name, (title, unit, style) in UPDATES.items():
        recorded = curve(history, name, config.seeds, "transitions")
        level = getattr(config.train, LEVELS[name]) if name in LEVELS else None
        panels.append(Panel(title, unit, [Line(recorded)], level, **style))
    figure = update_panels(panels, TRANSITIONS)
    stopped = curve(history, "kl_stop", config.seeds).values.mean()
    caption(
        figure,
        "Means over an iteration's minibatches, of KL the last one. Dashed: where an iteration "
        f"stops (KL; {stopped:.0%} did), to what gradients are cut (norm).",
        describe_seeds(config.seeds),
    )
    return figure
