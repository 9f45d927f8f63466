"""episodes of every policy -> values per env or seed, and figures that compare policies"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from quatrain.envs.host.rules import REFERENCES
from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.rules import REFERENCE_NAMES
from quatrain.plots import BLUE, GREY, RED, SMALL_TITLE, Level, caption, draw_ladder
from quatrain.statistics import LEAST_SEEDS, half_interval

COMPARISON_CAPTION = "Comparison: all policies in the same held-out worlds."


def names_of(config: LearnerConfig) -> dict[str, str]:
    """Returns the names of the policies in words."""
    names = {name.removesuffix("_return"): words for name, words in REFERENCE_NAMES.items()}
    return {"learned": "learned"} | (REFERENCES if config.brings_env else names)


def samples(
    outcomes: Sequence[Any], quantity: Callable[[Any], np.ndarray]
) -> Float[np.ndarray, "sample *axes"]:
    """Computes a quantity (*axes, env): its mean over envs per seed, or one seed's values per env.

    Learners vary more between seeds than between envs, so with several seeds these are the samples.
    """
    values = [quantity(outcome) for outcome in outcomes]
    if len(values) == 1:
        return np.moveaxis(values[0], -1, 0)
    return np.stack([seed_values.mean(-1) for seed_values in values])


def level_of(
    config: LearnerConfig, outcomes: Outcomes, scores: Mapping[str, float], name: str
) -> Level:
    """Returns a policy's return, with the interval of its mean where there is one."""
    value = scores["return_mean" if name == "learned" else f"{name}_return"]
    mean_returns = samples(outcomes.of(name), lambda outcome: outcome.returns.mean(0))
    few_seeds = 1 < len(outcomes.of(name)) < LEAST_SEEDS
    half = 0.0 if few_seeds else float(half_interval(mean_returns))
    color = RED if name == "learned" else BLUE if "oracle" in name else GREY
    return Level(names_of(config)[name], value, color, half)


def describe_intervals(outcomes: Outcomes) -> str:
    """Returns what the intervals of a figure are over."""
    seeds = len(outcomes.learned)
    worlds = len(outcomes.learned[0].returns[0])
    over_seeds = f", of learned over {seeds} seeds" if seeds >= LEAST_SEEDS else ""
    if 1 < seeds < LEAST_SEEDS:
        over_seeds = f", of learned none from {seeds} seeds"
    return f"Intervals: 95 % of the mean over {worlds} held-out worlds{over_seeds}."


def draw_comparison(
    config: LearnerConfig, outcomes: Outcomes, scores: Mapping[str, float], title: str, note: str
) -> Figure:
    """Draws the policy's return among those of the reference policies."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    levels = [level_of(config, outcomes, scores, name) for name in names_of(config)]
    draw_ladder(axes, levels, 1)
    axes.set_xlabel("return of an agent per episode, reward")
    axes.set_title(title, **SMALL_TITLE)
    caption(figure, "Red: learned. Grey: without learning.", describe_intervals(outcomes), note)
    return figure
