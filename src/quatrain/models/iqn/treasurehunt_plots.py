"""agents in held-out worlds -> an animation of an episode, and a figure of who gets how much"""

from collections.abc import Mapping

import numpy as np

from quatrain.animation import Animation, with_bar
from quatrain.envs.drawing import draw_treasure_hunt
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.rules import REFERENCE_NAMES
from quatrain.models.iqn.treasurehunt_scores import Outcome
from quatrain.plots import (
    BLUE,
    GREY,
    RED,
    EndLabel,
    Figure,
    caption,
    describe_seeds,
    draw_seeds,
    label_ends,
    line_with_band,
)
from quatrain.statistics import half_interval

MILLISECONDS = 160
# Policies whose agents are compared.
COMPARED = {
    "random": (REFERENCE_NAMES["random_return"], GREY),
    "oracle_view": (REFERENCE_NAMES["oracle_view_return"], BLUE),
    "learned": ("learned", RED),
}


def animate(config: IqnConfig, outcome: Outcome) -> Animation:
    """Shows the episode of the first held-out world."""
    rules = config.env
    values = [entity.value for entity in rules.entities]
    frames = [
        draw_treasure_hunt(rules.map.rows, values, *moment)
        for moment in zip(outcome.items, outcome.positions, strict=True)
    ]
    return Animation(with_bar(np.stack(frames)), MILLISECONDS)


def draw_fairness(config: IqnConfig, outcomes: Outcomes, scores: Mapping[str, float]) -> Figure:
    """Draws the return of each agent, in the order in which they act."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    agents = np.arange(config.env.agents)
    ends = []
    for name, (text, color) in COMPARED.items():
        returns = [outcome.returns for outcome in outcomes.of(name)]
        seeds = np.stack([values.mean(1) for values in returns])
        style = {"color": color, "marker": "o", "markersize": 4}
        if len(seeds) > 1:
            mean = draw_seeds(axes, agents, seeds, **style)
        else:
            mean, half = seeds[0], half_interval(returns[0].T)
            line_with_band(axes, agents, mean, mean - half, mean + half, **style)
        ends.append(EndLabel(mean[-1], text, color))
    order = "a new order each turn"
    if config.env.agent_order == "fixed":
        order = "the order in which they act"
    axes.set(xlabel=f"agent, in {order}", ylabel="return per episode, reward", xticks=agents)
    axes.grid(alpha=0.25)
    label_ends(axes, ends)
    gaps = f"learned {scores['order_gap']:.1f}, oracle {scores['oracle_view_order_gap']:.1f}"
    axes.set_title(f"Return of the first agent minus the last's: {gaps}")
    caption(
        figure,
        f"Inequality (Gini) of the learned: {scores['gini_systematic']:.3f} over all worlds, "
        f"{scores['gini_episode']:.3f} in each; 0 if all get the same.",
        describe_seeds(config.seeds) or "Bands: 95 % intervals of the mean over held-out worlds.",
    )
    return figure
