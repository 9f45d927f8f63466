"""episodes of every policy -> figures of the rewards within one, and of the mean returns"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from quatrain.models.iqn.evaluate import Outcome, returns
from quatrain.models.iqn.figures.replays import (
    COMPARED,
    NAMES,
    Replays,
    describe_intervals,
    draw_policies,
    samples,
)
from quatrain.plots import BLUE, GREY, SMALL_TITLE, caption
from quatrain.statistics import LEAST_SEEDS, half_interval


def draw_within_episode(replays: Replays) -> Figure:
    """Draws the reward per turn, and the return so far, over the turns of an episode."""
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    window = max(1, len(replays.learned[0].rewards) // 10)
    draw_policies(
        left,
        replays,
        lambda outcome: sliding_window_view(_mean_rewards(outcome), window, 0).mean(-1),
        first=(window + 1) / 2,
        linewidth=1.8,
    )
    draw_policies(
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
        describe_intervals(replays),
    )
    return figure


def _mean_rewards(outcome: Outcome) -> Float[np.ndarray, "turn env"]:
    return outcome.rewards.mean(1, dtype=np.float64)


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
        describe_intervals(replays),
        "All play the same worlds, so differences are more certain than these.\n"
        "An oracle has no memory and plans no way around walls: a learned policy may surpass it.",
    )
    return figure
