"""episodes of every policy -> values per env or seed, names and lines that figures share"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes

from quatrain.models.iqn.evaluate import Outcome, returns
from quatrain.models.iqn.rules import REFERENCE_NAMES
from quatrain.plots import (
    BLUE,
    GREY,
    RED,
    EndLabel,
    Level,
    draw_seeds,
    label_ends,
    mean_with_interval,
)
from quatrain.statistics import LEAST_SEEDS, half_interval

# Policy -> its name in words.
NAMES = {
    "learned": "learned",
    **{name.removesuffix("_return"): words for name, words in REFERENCE_NAMES.items()},
}
# Policies that are drawn as lines.
COMPARED = {"random": GREY, "oracle_view": BLUE, "learned": RED}


class Replays(NamedTuple):
    """Holds an episode of every held-out env: for each seed, and for each reference policy."""

    learned: list[Outcome]
    references: dict[str, Outcome]

    def of(self, name: str) -> list[Outcome]:
        """Returns the outcomes of one policy; `learned` has one for each seed."""
        return self.learned if name == "learned" else [self.references[name]]


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


def level_of(replays: Replays, scores: Mapping[str, float], name: str) -> Level:
    """Returns a policy's return, with the interval of its mean where there is one."""
    value = scores["return_mean" if name == "learned" else f"{name}_return"]
    mean_returns = samples(replays.of(name), lambda outcome: returns(outcome).mean(0))
    few_seeds = 1 < len(replays.of(name)) < LEAST_SEEDS
    half = 0.0 if few_seeds else float(half_interval(mean_returns))
    return Level(NAMES[name], value, color_of(name), half)


def color_of(name: str) -> str:
    return COMPARED.get(name, BLUE if "oracle" in name else GREY)


def describe_intervals(replays: Replays) -> str:
    """Returns what the intervals of a figure are over."""
    seeds = len(replays.learned)
    worlds = len(replays.learned[0].items_left)
    over_seeds = f", of learned over {seeds} seeds" if seeds >= LEAST_SEEDS else ""
    if 1 < seeds < LEAST_SEEDS:
        over_seeds = f", of learned none from {seeds} seeds"
    return f"Intervals: 95 % of the mean over {worlds} held-out worlds{over_seeds}."


def finish(axes: Axes, ends: list[EndLabel]) -> None:
    """Adds a grid, and the labels at the ends of lines."""
    axes.grid(alpha=0.25)
    label_ends(axes, ends)


def draw_policies(
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
    finish(axes, ends)
