"""history -> figures over training: returns beside reference policies, updates of the agents"""

from collections.abc import Callable, Mapping
from functools import partial

import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.figures.replays import COMPARED, NAMES, finish
from quatrain.plots import (
    GREY,
    ORANGE,
    RED,
    SMALL_TITLE,
    Curve,
    EndLabel,
    caption,
    curve,
    describe_seeds,
    draw_seeds,
    format_thousands,
)
from quatrain.progress import History

# Largest number of agents of which all lines have a label.
MAX_LABELLED = 8


def draw_learning_curve(config: IqnConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Draws the return over agent-steps, while training and greedy, with random and oracle."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    ends = _draw_returns(axes, config, history)
    for name in ("random", "oracle_view"):
        level = scores[f"{name}_return"]
        axes.axhline(level, color=COMPARED[name], linestyle="--", linewidth=1.2)
        ends.append(EndLabel(level, f"{NAMES[name]} {level:.1f}", COMPARED[name]))
    held_out = f"afterwards {scores['return_mean']:.1f} in held-out worlds"
    axes.set_title(f"Return while learning; {held_out}", loc="left")
    axes.set(
        xlabel="agent-steps of all agents and worlds, prefill included",
        ylabel="return of an agent per episode",
    )
    format_thousands(axes)
    finish(axes, ends)
    caption(
        figure,
        "Thick: mean over agents. Thin: single agents.",
        describe_seeds(config.seeds),
        "Dashed: in the held-out worlds.",
    )
    return figure


def _draw_returns(axes: Axes, config: IqnConfig, history: History) -> list[EndLabel]:
    steps = partial(agent_steps, history)
    styles = {
        "episode_return": ("while training", ORANGE),
        "greedy_return": ("greedy", RED),
    }
    recorded = [name for name in styles if name in history]
    ends = _draw_agents(axes, config, history, recorded[-1], steps)
    for name in recorded:
        text, color = styles[name]
        mean_curve = curve(history, name, config.seeds)
        line = draw_seeds(axes, steps(mean_curve), mean_curve.values, color=color, linewidth=2)
        ends.append(EndLabel(line[-1], text, color))
    return ends


def agent_steps(history: History, points: Curve) -> Float[np.ndarray, " point"]:
    """Returns the agent-steps at a curve's points, which are counted in updates."""
    return np.interp(points.steps, *history["agent_steps"])


def _draw_agents(
    axes: Axes,
    config: IqnConfig,
    history: History,
    name: str,
    x_of: Callable[[Curve], np.ndarray],
) -> list[EndLabel]:
    """Draws a thin line per agent, a mean over seeds, and returns their labels."""
    ends: list[EndLabel] = []
    agents = config.env.agents
    if agents == 1:
        return ends
    for agent in range(agents):
        agent_curve = curve(history, f"{name}/agent/{agent}", config.seeds)
        color = matplotlib.colormaps["viridis"](0.8 * agent / (agents - 1))
        axes.plot(
            x_of(agent_curve),
            agent_curve.values.mean(0),
            color=color,
            linewidth=0.8,
            alpha=0.8,
        )
        if agents <= MAX_LABELLED or agent in (0, agents - 1):
            ends.append(
                EndLabel(
                    agent_curve.values[:, -1].mean(),
                    f"agent {agent}",
                    color,
                )
            )
    return ends


def draw_learning(config: IqnConfig, history: History) -> Figure:
    """Draws loss, TD error, gradient norm and epsilon over updates: mean over agents, and each."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    clipped = curve(history, "clipped", config.seeds).values.mean()
    titles = {
        "loss": "Loss",
        "td_error_abs": "Mean |TD error|, in rewards",
        "grad_norm": f"Gradient norm of an agent; {clipped:.0%} were clipped",
        "epsilon": "Epsilon: share of random actions",
    }
    panels = figure.subplots(2, 2, sharex=True).flat
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        axes.set_title(title, **SMALL_TITLE)
        _draw_metric(axes, config, history, name)
    caption(
        figure,
        "Over updates of each agent. Thick: mean over agents. Thin: single agents.",
        f"The loss is a sum over {config.train.loss.quantiles} quantiles, and its targets "
        "grow with the policy: a growing loss alone is no failure.",
    )
    return figure


def _draw_metric(axes: Axes, config: IqnConfig, history: History, name: str) -> None:
    ends: list[EndLabel] = []
    if name != "epsilon":
        ends = _draw_agents(axes, config, history, name, lambda points: points.steps)
    mean_curve = curve(history, name, config.seeds)
    draw_seeds(axes, mean_curve.steps, mean_curve.values, color=RED, linewidth=2)
    if name == "grad_norm":
        limit = config.train.max_grad_norm
        axes.axhline(limit, color=GREY, linestyle="--", linewidth=1.2)
        ends.append(EndLabel(limit, f"clip {limit:g}", GREY))
    low, high = axes.dataLim.intervaly
    axes.set_yscale("log" if name != "epsilon" and high > 10 * low > 0 else "linear")
    finish(axes, ends)
