"""agents in held-out worlds -> an animation of an episode, and a figure of who gets how much"""

from collections.abc import Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.figure import Figure

from quatrain.animation import Animation, with_bar
from quatrain.envs.drawing import draw_treasure_hunt
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import network
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.evaluate import Outcomes
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.network import greedy_policy
from quatrain.models.iqn.rules import REFERENCE_NAMES
from quatrain.models.iqn.treasurehunt import Dataset, HeldOut, held_out_envs
from quatrain.plots import (
    BLUE,
    GREY,
    RED,
    EndLabel,
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


def animate(config: IqnConfig, state: State, dataset: Dataset) -> Animation:
    """Shows an episode of the first seed's agents, greedy, in the first held-out world."""
    first = HeldOut(*(column[:1] for column in dataset.held_out))
    params = network.pick(evaluation_params(config, state), 0)
    items, positions = map(np.asarray, _play(config, params, first, jax.random.key(0)))
    rules = config.env
    values = [entity.value for entity in rules.entities]
    frames = [
        draw_treasure_hunt(rules.map.rows, values, *moment)
        for moment in zip(items, positions, strict=True)
    ]
    return Animation(with_bar(np.stack(frames)), MILLISECONDS)


@partial(jax.jit, static_argnums=0)
def _play(
    config: IqnConfig, params: network.Params, held_out: HeldOut, key: Array
) -> tuple[Array, Array]:
    """Returns items and positions before the first turn and after each turn."""
    world = make_world(config.env)
    policy = greedy_policy(config, params)

    def one_turn(envs: turns.EnvStates, keys: Array) -> tuple[turns.EnvStates, tuple[Array, Array]]:
        after, _ = turns.play_turn(world, envs, policy, keys)
        return after, (after.state.items[0], after.state.positions[0])

    start = held_out_envs(config, held_out)
    keys = turns.turn_keys(world, key, jnp.int32(0), config.env.max_turns)
    _, (items, positions) = jax.lax.scan(one_turn, start, keys)
    return (
        jnp.concatenate([start.state.items, items]),
        jnp.concatenate([start.state.positions, positions]),
    )


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
