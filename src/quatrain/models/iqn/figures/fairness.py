"""episodes of every policy -> figure of the returns by turn order, and of unequal incomes"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import income, returns
from quatrain.models.iqn.figures.replays import (
    COMPARED,
    NAMES,
    Replays,
    describe_intervals,
    draw_policies,
)
from quatrain.plots import SMALL_TITLE, caption


def draw_fairness(config: IqnConfig, replays: Replays, scores: Mapping[str, float]) -> Figure:
    """Draws the return by turn order, and with several agents the Lorenz curve of their income."""
    panels = 1 if config.env.agents == 1 else 2
    figure = Figure(figsize=(5.5 * panels, 4.5), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_by_agent(axes[0], config, replays, scores)
    if panels == 2:
        _draw_lorenz(axes[1], config, replays, scores)
    caption(
        figure,
        describe_intervals(replays),
        "Income: what items of positive value paid. On the right, solid: over all worlds, "
        "dotted: within a world."
        if panels == 2
        else "",
    )
    return figure


def _draw_by_agent(
    axes: Axes,
    config: IqnConfig,
    replays: Replays,
    scores: Mapping[str, float],
) -> None:
    order = "who act in a new order each turn"
    if config.env.agent_order == "fixed":
        order = "in the order in which they act"
    axes.set(
        xlabel=f"agent, {order}",
        ylabel="return of the agent per episode",
        xticks=range(config.env.agents),
    )
    draw_policies(axes, replays, returns, first=0.0, marker="o", markersize=4)
    gaps = f"learned {scores['order_gap']:.1f}, oracle {scores['oracle_view_order_gap']:.1f}"
    axes.set_title(f"Return of the first agent minus the last's: {gaps}", **SMALL_TITLE)


def _draw_lorenz(
    axes: Axes,
    config: IqnConfig,
    replays: Replays,
    scores: Mapping[str, float],
) -> None:
    share = np.linspace(0, 1, config.env.agents + 1)
    axes.plot(share, share, color="0.2", linewidth=0.8, linestyle="--", label="equal shares")
    for name, color in COMPARED.items():
        incomes = [income(config.env, outcome) for outcome in replays.of(name)]
        overall = np.mean([lorenz(values.mean(1)) for values in incomes], axis=0)
        within = np.mean([lorenz(values).mean(1) for values in incomes], axis=0)
        axes.plot(share, overall, color=color, marker="o", markersize=3, label=NAMES[name])
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


def lorenz(
    incomes: Float[np.ndarray, "agent *env"],
) -> Float[np.ndarray, "share *env"]:
    """Computes the share of income of the poorest 0, 1, .. all agents; equal without any income."""
    total = incomes.sum(0)
    relative = np.sort(incomes, axis=0) / np.where(total == 0, 1, total)
    shares = np.where(total == 0, 1 / len(incomes), relative)
    return np.concatenate([np.zeros((1, *total.shape)), shares.cumsum(0)])
