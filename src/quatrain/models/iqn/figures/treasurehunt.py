"""episodes of every policy -> the figures of treasure hunts: a film, and fairness"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.figures import film
from quatrain.models.iqn.figures.policies import (
    COMPARISON_CAPTION,
    describe_intervals,
    names_of,
    samples,
)
from quatrain.models.iqn.figures.training import CURVE_CAPTION, LEARNING_CAPTION
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.treasurehunt import Dataset
from quatrain.models.iqn.treasurehunt_scores import income
from quatrain.plots import (
    BLUE,
    GREY,
    RED,
    SMALL_TITLE,
    EndLabel,
    Picture,
    caption,
    draw_seeds,
    label_ends,
    mean_with_interval,
)

# Policies that are drawn as lines.
COMPARED = {"random": GREY, "oracle_view": BLUE, "learned": RED}
# Picture -> what it shows, in the order of the story.
CAPTIONS = {
    "episode": "The task, and how the trained agents do it: an episode in a world that they have "
    "never seen. Diamonds are worth a reward (blue ones cost it); each numbered agent sees "
    "only the cells around it, and they act in turn. The bar below: turns passed.",
    "learning_curve": CURVE_CAPTION,
    "baseline_comparison": COMPARISON_CAPTION,
    "fairness": "Detail: how evenly agents share what they find; who acts first has the choice.",
    "learning": LEARNING_CAPTION,
}
NOTE = (
    "Blue: oracles, which know the rules. All play the same worlds, so differences are more "
    "certain than these. An oracle has no memory and plans no way around walls: a learned policy "
    "may surpass it."
)


def pictures(
    config: IqnConfig,
    state: State,
    dataset: Dataset,
    outcomes: Outcomes,
    scores: Mapping[str, float],
) -> dict[str, Picture]:
    """Draws what this world alone has."""
    return {
        "episode": film.animate(config, state, dataset),
        "fairness": draw_fairness(config, outcomes, scores),
    }


def comparison_title(_config: IqnConfig, scores: Mapping[str, float]) -> str:
    return (
        f"{scores['share']:.1%} of the oracle with the agents' view; "
        f"score {scores['score']:.3f} (random 0, that oracle 1)"
    )


def draw_fairness(config: IqnConfig, outcomes: Outcomes, scores: Mapping[str, float]) -> Figure:
    """Draws the return by turn order, and with several agents the Lorenz curve of their income."""
    panels = 1 if config.env.agents == 1 else 2
    figure = Figure(figsize=(5.5 * panels, 4.5), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_by_agent(axes[0], config, outcomes, scores)
    if panels == 2:
        _draw_lorenz(axes[1], config, outcomes, scores)
    caption(
        figure,
        describe_intervals(outcomes),
        "Income: what items of positive value paid. On the right, solid: over all worlds, "
        "dotted: within a world."
        if panels == 2
        else "",
    )
    return figure


def _draw_by_agent(
    axes: Axes, config: IqnConfig, outcomes: Outcomes, scores: Mapping[str, float]
) -> None:
    order = "who act in a new order each turn"
    if config.env.agent_order == "fixed":
        order = "in the order in which they act"
    axes.set(
        xlabel=f"agent, {order}",
        ylabel="return of the agent per episode",
        xticks=range(config.env.agents),
    )
    ends = []
    for name, color in COMPARED.items():
        values = samples(outcomes.of(name), lambda each: each.returns)
        draw = mean_with_interval if len(outcomes.of(name)) == 1 else draw_seeds
        line = draw(axes, np.arange(values.shape[1]), values, color=color, marker="o", markersize=4)
        ends.append(EndLabel(line[-1], names_of(config)[name], color))
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    gaps = f"learned {scores['order_gap']:.1f}, oracle {scores['oracle_view_order_gap']:.1f}"
    axes.set_title(f"Return of the first agent minus the last's: {gaps}", **SMALL_TITLE)


def _draw_lorenz(
    axes: Axes, config: IqnConfig, outcomes: Outcomes, scores: Mapping[str, float]
) -> None:
    share = np.linspace(0, 1, config.env.agents + 1)
    axes.plot(share, share, color="0.2", linewidth=0.8, linestyle="--", label="equal shares")
    for name, color in COMPARED.items():
        incomes = [income(config.env, outcome) for outcome in outcomes.of(name)]
        overall = np.mean([lorenz(values.mean(1)) for values in incomes], axis=0)
        within = np.mean([lorenz(values).mean(1) for values in incomes], axis=0)
        axes.plot(
            share, overall, color=color, marker="o", markersize=3, label=names_of(config)[name]
        )
        axes.plot(share, within, color=color, linestyle=":", linewidth=1.8)
    axes.set(
        xlabel="share of agents, poorest first",
        ylabel="their share of the income",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.set_title(
        f"Inequality (Gini) of the learned: {scores['gini_systematic']:.3f} over all worlds, "
        f"{scores['gini_episode']:.3f} in each",
        **SMALL_TITLE,
    )
    # The curves lie below the diagonal, so that the legend hides none.
    axes.legend(loc="upper left")
    axes.grid(alpha=0.25)


def lorenz(incomes: Float[np.ndarray, "agent *env"]) -> Float[np.ndarray, "share *env"]:
    """Computes the share of income of the poorest 0, 1, .. all agents; equal without any income."""
    total = incomes.sum(0)
    relative = np.sort(incomes, axis=0) / np.where(total == 0, 1, total)
    shares = np.where(total == 0, 1 / len(incomes), relative)
    return np.concatenate([np.zeros((1, *total.shape)), shares.cumsum(0)])
