"""history -> figures over training: returns beside reference policies, updates of the agents"""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.figures.policies import describe_intervals, level_of
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
    draw_levels_beside,
    draw_seeds,
    format_thousands,
    label_ends,
)
from quatrain.progress import History

CURVE_CAPTION = (
    "Learning: reward per episode while training, and afterwards in held-out worlds, beside "
    "policies that did not learn."
)
LEARNING_CAPTION = "Detail: what the updates of the networks do."
# Colour of a single agent's line.
SINGLE = "0.7"
# Policies beside the curve, in the held-out worlds.
BESIDE = ("learned", "oracle_view", "random")
USER_ENV_BESIDE = ("learned", "constant", "untrained", "random")


def draw_learning_curve(
    config: LearnerConfig, history: History, outcomes: Outcomes, scores: Mapping[str, float]
) -> Figure:
    """Draws the return over agent-steps in the training worlds, and beside it, since the worlds
    are others, the final return in the held-out ones among reference policies.
    """
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=(7, 1))
    agents = len(outcomes.learned[0].returns)
    ends = _draw_returns(left, config, agents, history)
    left.set_title("While learning, in the training worlds", **SMALL_TITLE)
    left.set(
        xlabel="agent-steps of all agents and envs, prefill included",
        ylabel="return of an agent per episode, reward",
    )
    format_thousands(left)
    beside = USER_ENV_BESIDE if config.brings_env else BESIDE
    levels = [level_of(config, outcomes, scores, name) for name in beside]
    right.set_title("Then, held-out worlds", **SMALL_TITLE)
    draw_levels_beside(right, levels, 1)
    left.grid(alpha=0.25)
    label_ends(left, ends)
    caption(
        figure,
        "Red, orange: means over agents." if agents > 1 else "",
        "Thin grey: each agent, greedy." if agents > 1 else "",
        describe_seeds(config.seeds),
        "Compare the learned policy with others on the right alone: there all play the same worlds."
        f" {describe_intervals(outcomes)}",
    )
    return figure


def _draw_returns(
    axes: Axes, config: LearnerConfig, agents: int, history: History
) -> list[EndLabel]:
    steps = partial(agent_steps, history)
    styles = {"episode_return": ("while exploring", ORANGE), "greedy_return": ("greedy", RED)}
    recorded = [name for name in styles if name in history]
    _draw_agents(axes, config, agents, history, recorded[-1], steps)
    ends = []
    for name in recorded:
        text, color = styles[name]
        mean_curve = curve(history, name, config.seeds)
        line = draw_seeds(axes, steps(mean_curve), mean_curve.values, color=color, linewidth=2)
        ends.append(EndLabel(line[-1], f"{text} {line[-1]:.1f}", color))
    return ends


def agent_steps(history: History, points: Curve) -> Float[np.ndarray, " point"]:
    """Returns the agent-steps at a curve's points, which are counted in updates."""
    return np.interp(points.steps, *history["agent_steps"])


def _draw_agents(
    axes: Axes,
    config: LearnerConfig,
    agents: int,
    history: History,
    name: str,
    x_of: Callable[[Curve], np.ndarray],
) -> None:
    """Draws a thin line per agent if there are several, a mean over seeds."""
    for agent in range(agents if agents > 1 else 0):
        agent_curve = curve(history, f"{name}/agent/{agent}", config.seeds)
        axes.plot(x_of(agent_curve), agent_curve.values.mean(0), color=SINGLE, linewidth=0.8)


def draw_learning(config: LearnerConfig, agents: int, history: History) -> Figure:
    """Draws loss, TD error, gradient norm and epsilon over updates: mean over agents, and each."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    clipped = curve(history, "clipped", config.seeds).values.mean()
    metrics = {
        "loss": ("Quantile loss", "loss, summed over quantiles"),
        "td_error_abs": ("Size of the error of predicted returns", "mean |TD error|, reward"),
        "grad_norm": (f"Gradients; {clipped:.0%} were clipped", "norm of an agent's gradient"),
        "epsilon": ("Exploration", "epsilon, share of random actions"),
    }
    panels = figure.subplots(2, 2, sharex=True)
    for axes, (name, (title, label)) in zip(panels.flat, metrics.items(), strict=True):
        axes.set_title(title, **SMALL_TITLE)
        axes.set_ylabel(label)
        _draw_metric(axes, config, agents, history, name)
    for axes in panels[1]:
        axes.set_xlabel("updates of each agent")
        format_thousands(axes)
    caption(
        figure,
        "Red: mean over agents. Thin grey: single agents." if agents > 1 else "",
        f"The loss is a sum over {config.train.loss.quantiles} quantiles, and its targets "
        "grow with the policy: a growing loss alone is no failure.",
        describe_seeds(config.seeds),
    )
    return figure


def _draw_metric(
    axes: Axes, config: LearnerConfig, agents: int, history: History, name: str
) -> None:
    ends: list[EndLabel] = []
    if name != "epsilon":
        _draw_agents(axes, config, agents, history, name, lambda points: points.steps)
    mean_curve = curve(history, name, config.seeds)
    draw_seeds(axes, mean_curve.steps, mean_curve.values, color=RED, linewidth=2)
    if name == "grad_norm":
        limit = config.train.max_grad_norm
        axes.axhline(limit, color=GREY, linestyle="--", linewidth=1.2)
        ends.append(EndLabel(limit, f"clipped at {limit:g}", GREY))
    axes.set_ylim(0, 1 if name == "epsilon" else None)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
