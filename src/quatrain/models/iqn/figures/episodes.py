"""episodes of every policy -> figures of the rewards within one, and of the mean returns"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy.lib.stride_tricks import sliding_window_view

from quatrain.models.iqn.evaluate import Outcome
from quatrain.models.iqn.figures.replays import (
    NAMES,
    Replays,
    describe_intervals,
    draw_policies,
    level_of,
)
from quatrain.plots import SMALL_TITLE, caption, draw_ladder


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
    left.set_ylabel("reward of an agent per turn")
    left.set_title(f"Where in the episode reward is found (mean of {window} turns)", **SMALL_TITLE)
    right.set_ylabel("return of an agent so far, reward")
    right.set_title("What that adds up to", **SMALL_TITLE)
    caption(
        figure,
        "The same worlds, with the same growth, under each policy.",
        describe_intervals(replays),
    )
    return figure


def _mean_rewards(outcome: Outcome) -> Float[np.ndarray, "turn env"]:
    return outcome.rewards.mean(1, dtype=np.float64)


def draw_baseline_comparison(replays: Replays, scores: Mapping[str, float]) -> Figure:
    """Draws the policy's return among those of the reference policies."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    draw_ladder(axes, [level_of(replays, scores, name) for name in NAMES], 1)
    axes.set_xlabel("return of an agent per episode, reward")
    axes.set_title(
        f"{scores['share']:.1%} of the oracle with the agents' view; "
        f"score {scores['score']:.3f} (random 0, that oracle 1)",
        **SMALL_TITLE,
    )
    caption(
        figure,
        "Red: learned. Blue: oracles, which know the rules. Grey: without learning.",
        describe_intervals(replays),
        "All play the same worlds, so differences are more certain than these. An oracle has no "
        "memory and plans no way around walls: a learned policy may surpass it.",
    )
    return figure
