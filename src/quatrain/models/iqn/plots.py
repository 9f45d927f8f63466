"""state, held-out envs, history -> figures of learning, of the comparison and of the world's own"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.evaluate import Outcomes, scores_of
from quatrain.models.iqn.learn import State
from quatrain.plots import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    Figure,
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
from quatrain.statistics import LEAST_SEEDS

# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "film": "How does the trained agent act? A held-out episode by its best actions, as the "
    "environment shows itself.",
    "episode": "What is to be done, and how do the trained agents do it? An episode in a world "
    "that they have never seen. Diamonds are treasures, violet and green ones cost; each numbered "
    "agent sees only the cells around it, and they act in turn. The bar below: turns passed.",
    "learning_curve": "Does it learn? Reward per episode while training, and afterwards in "
    "held-out worlds, beside policies that did not learn.",
    "returns": "How much does luck decide? All policies in held-out worlds, by return.",
    "fairness": "Do all agents get the same? What each collects; who acts first has the choice.",
    "expectations": "Does it know what it will get? The return that the trained agent expects "
    "along an episode, and what it then gets.",
    "learning": "Are the updates sound? Errors of the predicted returns, gradients, exploration.",
}
# Recorded metric -> title and unit of its panel.
UPDATES = {
    "loss": ("Quantile loss", "loss, summed over quantiles"),
    "td_error_abs": ("Error of predicted returns", "mean |TD error|, reward"),
    "grad_norm": ("Gradients before they are cut", "norm, of an agent"),
    "epsilon": ("Exploration", "share of random actions"),
}


@house_style
def plots(
    config: LearnerConfig, state: State, dataset: Any, history: History, evaluation: Evaluation
) -> dict[str, Picture]:
    """Draws the figures of a trained iqn."""
    scores, outcomes = evaluation
    policies = policy_returns(config, outcomes, scores)
    pictures: dict[str, Picture] = {
        "learning_curve": draw_learning_curve(config, history, policies),
        "returns": draw_returns(config, policies),
        "learning": draw_learning(config, history),
    }
    pictures |= scores_of(config).pictures(config, state, dataset, outcomes, scores)
    return in_order(pictures, CAPTIONS)


def policy_returns(
    config: LearnerConfig, outcomes: Outcomes, scores: Mapping[str, float]
) -> dict[str, PolicyReturns]:
    """Returns what each policy gets in the held-out worlds, a mean over a world's agents."""
    policies = {}
    for name, text in {"learned": "learned", **scores_of(config).REFERENCES}.items():
        color = RED if name == "learned" else BLUE if "oracle" in name else GREY
        values = np.stack([outcome.returns.mean(0) for outcome in outcomes.of(name)])
        mean = scores["return_mean" if name == "learned" else f"{name}_return"]
        policies[name] = PolicyReturns(text, color, values, mean)
    return policies


def draw_learning_curve(
    config: LearnerConfig, history: History, policies: Mapping[str, PolicyReturns]
) -> Figure:
    """Draws the return over agent-steps in the training worlds, and beside it, since the worlds
    are others, the final return in the held-out ones among reference policies.
    """
    named = {"episode_return": ("while exploring", ORANGE), "greedy_return": ("greedy", RED)}
    lines = [
        Line(curve(history, name, config.seeds, "agent_steps"), color, text)
        for name, (text, color) in named.items()
        if name in history
    ]
    figure = learning_curve(
        lines,
        [policies[name].level for name in scores_of(config).BESIDE],
        1,
        "agent-steps of all agents and envs, prefill included",
        "return of an agent per episode, reward",
        ("While learning, in the training worlds", "Then, held-out worlds"),
    )
    caption(
        figure,
        describe_seeds(config.seeds),
        "Compare policies on the right alone: there all play held-out worlds.",
        describe_intervals(policies),
    )
    return figure


def draw_returns(config: LearnerConfig, policies: Mapping[str, PolicyReturns]) -> Figure:
    """Draws the returns of the learned policy among those of the reference policies."""
    figure = returns_ecdf(list(policies.values()), "return of an agent per episode, reward")
    caption(
        figure,
        "Red: learned. Grey: without learning.",
        scores_of(config).REMARK,
        describe_intervals(policies),
    )
    return figure


def describe_intervals(policies: Mapping[str, PolicyReturns]) -> str:
    """Returns what the intervals of a figure are over; in a user's environment, policies play the
    same worlds, but some play more of them.
    """
    seeds = len(policies["learned"].values)
    numbers = {policy.values.shape[-1] for policy in policies.values()}
    worlds = " to ".join(map(str, sorted({min(numbers), max(numbers)})))
    kind = "over" if seeds >= LEAST_SEEDS else "none from"
    over = f", of learned {kind} {seeds} seeds" if seeds > 1 else ""
    return f"Intervals: 95 % of the mean over {worlds} held-out worlds{over}."


def draw_learning(config: LearnerConfig, history: History) -> Figure:
    """Draws loss, TD error, gradient norm and epsilon over updates, means over agents."""
    levels = {"grad_norm": config.train.max_grad_norm}
    limits = {"epsilon": (0.0, 1.0)}
    panels = [
        Panel(
            title,
            unit,
            [Line(curve(history, name, config.seeds))],
            level=levels.get(name),
            limits=limits.get(name, (0.0, None)),
        )
        for name, (title, unit) in UPDATES.items()
    ]
    figure = update_panels(panels, "updates of each agent", columns=2)
    clipped = curve(history, "clipped", config.seeds).values.mean()
    caption(
        figure,
        f"Means over agents. Dashed: to what gradients are cut; {clipped:.0%} were. The loss is a "
        f"sum over {config.train.loss.quantiles} quantiles, and its targets grow with the policy: "
        "a growing loss alone is no failure.",
        describe_seeds(config.seeds),
    )
    return figure
