"""learner, held-out worlds, history -> figures: how fast was it learned, where does it stand, and who gets what?"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Float, Key
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from quatrain.models.iqn import evaluate
from quatrain.models.iqn.collect import Dataset
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcome, income, returns
from quatrain.models.iqn.train import State
from quatrain.plots import (
    BLUE,
    GREY,
    ORANGE,
    RED,
    Curve,
    EndLabel,
    caption,
    curve,
    label_ends,
    mean_with_interval,
)
from quatrain.progress import History
from quatrain.statistics import half_interval

REPLAY = 2**32 - 1
"""Folded into a held-out world's key where the world itself folds in the number of an episode."""
NAMES = {
    "constant": "always up",
    "random": "random",
    "free_random": "random, unblocked",
    "learned": "learned",
    "oracle_view": "oracle, own view",
    "oracle_full": "oracle, full view",
}
"""Of policies, from floors to ceilings."""
COMPARED = {"random": GREY, "oracle_view": BLUE, "learned": RED}
"""Policies that are drawn as lines."""
MOST_LABELLED = 8
"""Agents up to which each of their lines has a label."""


class Replays(NamedTuple):
    """One episode of every held-out world: of the learner of each seed, and of each policy that needs no learning."""

    learned: list[Outcome]
    yardsticks: dict[str, Outcome]

    def of(self, name: str) -> list[Outcome]:
        """Under one policy; `learned` has one for each seed."""
        return self.learned if name == "learned" else [self.yardsticks[name]]


def plots(
    config: IqnConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Figures of one trained iqn; of several seeds means with 95 % intervals over seeds."""
    key = _key(dataset)
    yardsticks = {
        name: evaluate.yardstick(config, name, dataset, key) for name in evaluate.YARDSTICKS
    }
    replays = Replays(evaluate.learned(config, state, dataset, key), yardsticks)
    return {
        "learning_curve": draw_learning_curve(config, history, scores),
        "within_episode": draw_within_episode(replays),
        "standing": draw_standing(replays, scores),
        "fairness": draw_fairness(config, replays, scores),
        "learning": draw_learning(config, history),
    }


def _key(dataset: Dataset) -> Key[jax.Array, ""]:
    """Randomness of the policies: of the dataset, but of no world in it."""
    return jax.random.fold_in(
        jax.random.wrap_key_data(jnp.asarray(dataset.held_out.keys[0])), REPLAY
    )


def samples(
    outcomes: Sequence[Outcome], of: Callable[[Outcome], np.ndarray]
) -> Float[np.ndarray, "samples *axes"]:
    """A quantity (*axes, worlds) of each seed, its mean over worlds; of a single seed in each world.

    What a learner is varies more between seeds than between worlds, so with several seeds these are the samples.
    """
    found = [of(one) for one in outcomes]
    return (
        np.moveaxis(found[0], -1, 0)
        if len(found) == 1
        else np.stack([one.mean(-1) for one in found])
    )


def _intervals(replays: Replays) -> str:
    worlds = len(replays.learned[0].items_left)
    over_seeds = (
        f", of learned over {len(replays.learned)} seeds" if len(replays.learned) > 1 else ""
    )
    return f"Intervals: 95 % of the mean over {worlds} held-out worlds{over_seeds}."


# Over training.


def draw_learning_curve(config: IqnConfig, history: History, scores: Mapping[str, float]) -> Figure:
    """Return over agent-steps, while training and greedy and of each agent, beside chance and the oracle."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    steps = partial(agent_steps, history)
    shown = {"episode_return": ("while training", ORANGE), "greedy_return": ("greedy", RED)}
    recorded = [name for name in shown if name in history]
    ends = _agent_lines(axes, config, history, recorded[-1], steps)
    for name in recorded:
        text, color = shown[name]
        found = curve(history, name, config.seeds)
        mean_with_interval(axes, steps(found), found.values, color=color, linewidth=2)
        ends.append(EndLabel(found.values[:, -1].mean(), text, color))
    for name in ("random", "oracle_view"):
        level, color = scores[f"{name}_return"], COMPARED[name]
        axes.axhline(level, color=color, linestyle="--", linewidth=1.2)
        ends.append(EndLabel(level, f"{NAMES[name]} {level:.1f}", color))
    axes.set_title(
        f"Return while learning; afterwards {scores['return_mean']:.1f} in held-out worlds",
        loc="left",
    )
    axes.set(
        xlabel="agent-steps of all agents and worlds, prefill included",
        ylabel="return of an agent per episode",
    )
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    bands = f"Bands: 95 % interval over {config.seeds} seeds." if config.seeds > 1 else ""
    caption(
        figure,
        "Thick: mean over agents. Thin: single agents.",
        bands,
        "Dashed: in the held-out worlds.",
    )
    return figure


def agent_steps(history: History, found: Curve) -> Float[np.ndarray, " points"]:
    """The agent-steps at a curve's points, which are counted in updates."""
    return np.interp(found.steps, *history["agent_steps"])


def _agent_lines(
    axes: Axes, config: IqnConfig, history: History, name: str, x_of: Callable[[Curve], np.ndarray]
) -> list[EndLabel]:
    """A thin line for each agent, a mean over seeds, and what to write beside it."""
    agents, ends = config.env.agents, []
    if agents == 1:
        return []
    for agent in range(agents):
        found = curve(history, f"{name}/agent/{agent}", config.seeds)
        color = matplotlib.colormaps["viridis"](0.8 * agent / (agents - 1))
        axes.plot(x_of(found), found.values.mean(0), color=color, linewidth=0.8, alpha=0.8)
        if agents <= MOST_LABELLED or agent in (0, agents - 1):
            ends.append(EndLabel(found.values[:, -1].mean(), f"agent {agent}", color))
    return ends


def draw_learning(config: IqnConfig, history: History) -> Figure:
    """Loss, TD error, gradient norm and epsilon over updates: mean over agents, and each of them."""
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    clipped = curve(history, "clipped", config.seeds).values.mean()
    titles = {
        "loss": "Loss",
        "td_error_abs": "Mean |TD error|, in rewards",
        "grad_norm": f"Gradient norm of an agent; {clipped:.0%} were clipped",
        "epsilon": "Epsilon: share of random actions",
    }
    panels = dict(zip(titles, figure.subplots(2, 2, sharex=True).flat, strict=True))
    for name, axes in panels.items():
        found = curve(history, name, config.seeds)
        ends = _agent_lines(axes, config, history, name, _steps) if name != "epsilon" else []
        axes.plot(found.steps, found.values.mean(0), color=RED, linewidth=2)
        axes.set_title(titles[name], loc="left", fontsize=10)
        axes.grid(alpha=0.25)
        if name == "grad_norm":
            limit = config.train.max_grad_norm
            axes.axhline(limit, color=GREY, linestyle="--", linewidth=1.2)
            ends.append(EndLabel(limit, f"clip {limit:g}", GREY))
        low, high = axes.dataLim.intervaly
        axes.set_yscale("log" if name != "epsilon" and high > 10 * low > 0 else "linear")
        label_ends(axes, ends)
    caption(
        figure,
        "Over updates of each agent. Thick: mean over agents. Thin: single agents.",
        f"The loss is a sum over {config.train.loss.quantiles} quantiles, and its targets grow with the policy: "
        "a growing loss alone is no failure.",
    )
    return figure


def _steps(found: Curve) -> np.ndarray:
    return found.steps


# In the held-out worlds.


def draw_within_episode(replays: Replays) -> Figure:
    """Reward per turn, and their sum so far, over the turns of an episode: learned, random, oracle."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    turns = len(replays.learned[0].rewards)
    window = max(1, turns // 10)
    for axes, of in ((left, partial(_moving_mean, window=window)), (right, _so_far)):
        ends = []
        for name, color in COMPARED.items():
            values = samples(replays.of(name), of)
            x = np.arange(values.shape[1]) + 1 + (turns - values.shape[1]) / 2
            mean_with_interval(axes, x, values, color=color, linewidth=1.8)
            ends.append(EndLabel(values[:, -1].mean(), NAMES[name], color))
        axes.set_xlabel("turn of the episode")
        axes.grid(alpha=0.25)
        label_ends(axes, ends)
    left.set_title(f"Reward of an agent per turn (mean of {window} turns)", loc="left", fontsize=10)
    right.set_title("Return of an agent so far", loc="left", fontsize=10)
    caption(
        figure, "The same worlds, with the same growth, under each policy.", _intervals(replays)
    )
    return figure


def _moving_mean(outcome: Outcome, window: int) -> Float[np.ndarray, "turns worlds"]:
    """Mean reward over agents and the turns around each."""
    return np.lib.stride_tricks.sliding_window_view(
        outcome.rewards.mean(1, dtype=np.float64), window, 0
    ).mean(-1)


def _so_far(outcome: Outcome) -> Float[np.ndarray, "turns worlds"]:
    """Mean return over agents up to each turn."""
    return outcome.rewards.mean(1, dtype=np.float64).cumsum(0)


def _of_agents(outcome: Outcome) -> Float[np.ndarray, " worlds"]:
    """Mean return over agents."""
    return returns(outcome).mean(0)


def draw_standing(replays: Replays, scores: Mapping[str, float]) -> Figure:
    """The policy's return between floors and ceilings."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    values = [scores["return_mean" if name == "learned" else f"{name}_return"] for name in NAMES]
    halves = [float(half_interval(samples(replays.of(name), _of_agents))) for name in NAMES]
    colors = [COMPARED.get(name, BLUE if "oracle" in name else GREY) for name in NAMES]
    axes.barh(list(NAMES.values()), values, xerr=halves, color=colors, ecolor="0.2", capsize=3)
    for row, (value, half) in enumerate(zip(values, halves, strict=True)):
        axes.text(max(value + half, 0), row, f"  {value:.1f} ± {half:.1f}", va="center", fontsize=9)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.margins(x=0.15)
    axes.set_xlabel("return of an agent per episode")
    axes.set_title(
        f"Where the policy stands: {scores['share']:.1%} of the oracle with the agents' view, score "
        f"{scores['score']:.3f} (chance 0, that oracle 1)",
        loc="left",
        fontsize=10,
    )
    caption(
        figure,
        _intervals(replays),
        "All play the same worlds, so differences are surer than these.\n"
        "An oracle has no memory and plans no way around walls: a learned policy may surpass it.",
    )
    return figure


def draw_fairness(config: IqnConfig, replays: Replays, scores: Mapping[str, float]) -> Figure:
    """Return by turn order, and how income is spread over agents (a Lorenz curve, where there are several)."""
    panels = 1 if config.env.agents == 1 else 2
    figure = Figure(figsize=(5.5 * panels, 4.5), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    _draw_by_agent(axes[0], config, replays, scores)
    if panels == 2:
        _draw_lorenz(axes[1], config, replays, scores)
    caption(figure, _intervals(replays), "Income: what items of positive value paid.")
    return figure


def _draw_by_agent(
    axes: Axes, config: IqnConfig, replays: Replays, scores: Mapping[str, float]
) -> None:
    agents, ends = np.arange(config.env.agents), []
    for name, color in COMPARED.items():
        values = samples(replays.of(name), returns)
        mean_with_interval(axes, agents, values, color=color, marker="o", markersize=4)
        ends.append(EndLabel(values[:, -1].mean(), NAMES[name], color))
    order = (
        "in the order in which they act"
        if config.env.agent_order == "fixed"
        else "who act in a new order each turn"
    )
    axes.set(xlabel=f"agents, {order}", ylabel="return per episode", xticks=agents)
    axes.set_title(
        f"First minus last: learned {scores['order_gap']:.1f}, oracle {scores['oracle_view_order_gap']:.1f}",
        loc="left",
        fontsize=10,
    )
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def _draw_lorenz(
    axes: Axes, config: IqnConfig, replays: Replays, scores: Mapping[str, float]
) -> None:
    share = np.linspace(0, 1, config.env.agents + 1)
    axes.plot(share, share, color="0.7", linewidth=1)
    for name, color in COMPARED.items():
        earned = [income(config.env, outcome) for outcome in replays.of(name)]
        overall = np.mean([lorenz(one.mean(1)) for one in earned], axis=0)
        within = np.mean([lorenz(one).mean(1) for one in earned], axis=0)
        axes.plot(share, overall, color=color, marker="o", markersize=3)
        axes.plot(share, within, color=color, linestyle=":")
    axes.set(
        xlabel="share of agents, poorest first",
        ylabel="their share of the income",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.set_title(
        f"Gini {scores['gini_systematic']:.3f} over all worlds (solid), {scores['gini_episode']:.3f} in each (dotted)",
        loc="left",
        fontsize=10,
    )
    axes.text(
        0.5,
        0.52,
        "equal shares",
        color=GREY,
        fontsize=8,
        rotation=45,
        rotation_mode="anchor",
        ha="center",
    )


def lorenz(incomes: Float[np.ndarray, "agents *worlds"]) -> Float[np.ndarray, "shares *worlds"]:
    """Share of all income that the poorest 0, 1, .. all agents have; equal shares where there is none."""
    total = incomes.sum(0)
    shares = np.where(
        total == 0, 1 / len(incomes), np.sort(incomes, axis=0) / np.where(total == 0, 1, total)
    )
    return np.concatenate([np.zeros((1, *total.shape)), shares.cumsum(0)])
