"""state, held-out envs, history -> figures of learning, of the comparison and of fairness"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from quatrain.models.iqn.collect import Dataset
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import (
    Outcome,
    evaluate_policy,
    evaluate_reference_policies,
    income,
    returns,
)
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
    describe_seeds,
    draw_seeds,
    label_ends,
    mean_with_interval,
)
from quatrain.progress import History
from quatrain.statistics import LEAST_SEEDS, half_interval

# Number folded into a held-out env's key in place of an episode's.
REPLAY = 2**32 - 1
# Names of policies, from lower to upper references.
NAMES = {
    "constant": "always up",
    "random": "random",
    "free_random": "random, unblocked",
    "learned": "learned",
    "oracle_view": "oracle, own view",
    "oracle_full": "oracle, full view",
}
# Policies that are drawn as lines.
COMPARED = {"random": GREY, "oracle_view": BLUE, "learned": RED}
# Largest number of agents of which all lines have a label.
MAX_LABELLED = 8
SMALL_TITLE: dict[str, Any] = {"loc": "left", "fontsize": 10}


class Replays(NamedTuple):
    """Holds an episode of every held-out env: for each seed, and for each reference policy."""

    learned: list[Outcome]
    references: dict[str, Outcome]

    def of(self, name: str) -> list[Outcome]:
        """Returns the outcomes of one policy; `learned` has one for each seed."""
        return self.learned if name == "learned" else [self.references[name]]


def plots(
    config: IqnConfig,
    state: State,
    dataset: Dataset,
    history: History,
    scores: Mapping[str, float],
) -> dict[str, Figure]:
    """Draws the figures of a trained iqn; with several seeds means and 95 % intervals."""
    env_key = jax.random.wrap_key_data(jnp.asarray(dataset.held_out.keys[0]))
    key = jax.random.fold_in(env_key, REPLAY)
    replays = Replays(
        evaluate_policy(config, state, dataset, key),
        evaluate_reference_policies(config, dataset, key),
    )
    return {
        "learning_curve": draw_learning_curve(config, history, scores),
        "within_episode": draw_within_episode(replays),
        "baseline_comparison": draw_baseline_comparison(replays, scores),
        "fairness": draw_fairness(config, replays, scores),
        "learning": draw_learning(config, history),
    }


def samples(
    outcomes: Sequence[Outcome], quantity: Callable[[Outcome], np.ndarray]
) -> Float[np.ndarray, "sample *axes"]:
    """Computes a quantity (*axes, env): its mean over envs per seed, or one seed's values per env.

    Learners vary more between seeds than between envs, so with several seeds these are the samples.
    """
    values = [quantity(outcome) for outcome in outcomes]
    if len(values) == 1:
        return np.moveaxis(values[0], -1, 0)
    return np.stack([seed_values.mean(-1) for seed_values in values])


def _describe_intervals(replays: Replays) -> str:
    seeds = len(replays.learned)
    worlds = len(replays.learned[0].items_left)
    over_seeds = f", of learned over {seeds} seeds" if seeds >= LEAST_SEEDS else ""
    if 1 < seeds < LEAST_SEEDS:
        over_seeds = f", of learned none from {seeds} seeds"
    return f"Intervals: 95 % of the mean over {worlds} held-out worlds{over_seeds}."


# Over training.


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
    _finish(axes, ends)
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


def _finish(axes: Axes, ends: list[EndLabel]) -> None:
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


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
    _finish(axes, ends)


# In the held-out envs.


def draw_within_episode(replays: Replays) -> Figure:
    """Draws the reward per turn, and the return so far, over the turns of an episode."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    window = max(1, len(replays.learned[0].rewards) // 10)
    _draw_policies(
        left,
        replays,
        lambda outcome: sliding_window_view(_mean_rewards(outcome), window, 0).mean(-1),
        first=(window + 1) / 2,
        linewidth=1.8,
    )
    _draw_policies(
        right,
        replays,
        lambda outcome: _mean_rewards(outcome).cumsum(0),
        first=1.0,
        linewidth=1.8,
    )
    for axes in (left, right):
        axes.set_xlabel("turn of the episode")
    left.set_title(
        f"Reward of an agent per turn (mean of {window} turns)",
        **SMALL_TITLE,
    )
    right.set_title("Return of an agent so far", **SMALL_TITLE)
    caption(
        figure,
        "The same worlds, with the same growth, under each policy.",
        _describe_intervals(replays),
    )
    return figure


def _mean_rewards(outcome: Outcome) -> Float[np.ndarray, "turn env"]:
    return outcome.rewards.mean(1, dtype=np.float64)


def _draw_policies(
    axes: Axes,
    replays: Replays,
    quantity: Callable[[Outcome], np.ndarray],
    first: float,
    **style: Any,
) -> None:
    """Draws a quantity (point, env) of each compared policy over first, first + 1, ..."""
    ends = []
    for name, color in COMPARED.items():
        values = samples(replays.of(name), quantity)
        x = np.arange(values.shape[1]) + first
        draw = mean_with_interval if len(replays.of(name)) == 1 else draw_seeds
        line = draw(axes, x, values, color=color, **style)
        ends.append(EndLabel(line[-1], NAMES[name], color))
    _finish(axes, ends)


def draw_baseline_comparison(replays: Replays, scores: Mapping[str, float]) -> Figure:
    """Draws the policy's return between those of the reference policies."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    for place, (name, label) in enumerate(NAMES.items()):
        value = scores["return_mean" if name == "learned" else f"{name}_return"]
        mean_returns = samples(replays.of(name), lambda outcome: returns(outcome).mean(0))
        few_seeds = 1 < len(replays.of(name)) < LEAST_SEEDS
        half = 0.0 if few_seeds else float(half_interval(mean_returns))
        axes.barh(
            label,
            value,
            xerr=half,
            color=COMPARED.get(name, BLUE if "oracle" in name else GREY),
            ecolor="0.2",
            capsize=3,
        )
        text = f"  {value:.1f}" + (f" ± {half:.1f}" if half else "")
        axes.text(max(value + half, 0), place, text, va="center", fontsize=9)
    axes.axvline(0, color="0.3", linewidth=0.8)
    axes.margins(x=0.15)
    axes.set_xlabel("return of an agent per episode")
    share = f"{scores['share']:.1%} of the oracle with the agents' view"
    score = f"score {scores['score']:.3f} (chance 0, that oracle 1)"
    axes.set_title(
        f"Comparison with reference policies: {share}, {score}",
        **SMALL_TITLE,
    )
    caption(
        figure,
        _describe_intervals(replays),
        "All play the same worlds, so differences are more certain than these.\n"
        "An oracle has no memory and plans no way around walls: a learned policy may surpass it.",
    )
    return figure


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
        _describe_intervals(replays),
        "Income: what items of positive value paid.",
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
        xlabel=f"agents, {order}",
        ylabel="return per episode",
        xticks=range(config.env.agents),
    )
    _draw_policies(axes, replays, returns, first=0.0, marker="o", markersize=4)
    gaps = f"learned {scores['order_gap']:.1f}, oracle {scores['oracle_view_order_gap']:.1f}"
    axes.set_title(f"First minus last: {gaps}", **SMALL_TITLE)


def _draw_lorenz(
    axes: Axes,
    config: IqnConfig,
    replays: Replays,
    scores: Mapping[str, float],
) -> None:
    share = np.linspace(0, 1, config.env.agents + 1)
    axes.plot(share, share, color="0.7", linewidth=1)
    for name, color in COMPARED.items():
        incomes = [income(config.env, outcome) for outcome in replays.of(name)]
        overall = np.mean([lorenz(values.mean(1)) for values in incomes], axis=0)
        within = np.mean([lorenz(values).mean(1) for values in incomes], axis=0)
        axes.plot(share, overall, color=color, marker="o", markersize=3)
        axes.plot(share, within, color=color, linestyle=":")
    axes.set(
        xlabel="share of agents, poorest first",
        ylabel="their share of the income",
        xlim=(0, 1),
        ylim=(0, 1),
    )
    axes.set_title(
        f"Gini {scores['gini_systematic']:.3f} over all worlds (solid), "
        f"{scores['gini_episode']:.3f} in each (dotted)",
        **SMALL_TITLE,
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


def lorenz(
    incomes: Float[np.ndarray, "agent *env"],
) -> Float[np.ndarray, "share *env"]:
    """Computes the share of income of the poorest 0, 1, .. all agents; equal without any income."""
    total = incomes.sum(0)
    relative = np.sort(incomes, axis=0) / np.where(total == 0, 1, total)
    shares = np.where(total == 0, 1 / len(incomes), relative)
    return np.concatenate([np.zeros((1, *total.shape)), shares.cumsum(0)])
