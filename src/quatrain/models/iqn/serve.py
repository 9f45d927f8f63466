"""learner -> the arrays that answer without it; what agents see -> what their actions are worth, and the best one."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Int32, UInt8

from quatrain.envs.treasurehunt import policies, turns
from quatrain.envs.treasurehunt.rules import channels
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.jax import packing
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, lanes_of
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import midpoints, of_agent
from quatrain.models.iqn.train import State, judged_params
from quatrain.replay.frames import AnyArray
from quatrain.requests import Input, validate_request

BLOCK = 64
"""Questions that one call of the compiled program answers: a single program serves requests of any length."""
EXAMPLES = 2
WALK = np.uint32(2**32 - 2)
"""Folded into a held-out world's key where an episode's number goes: for the walk that leads to the example."""
LARGEST = 2
"""Of a view's numbers: a wall on the ground counts twice."""


class Question(NamedTuple):
    """Who sees what."""

    views: UInt8[np.ndarray, "questions frames channels rows columns"]
    agents: Int32[np.ndarray, " questions"]


class Judged(NamedTuple):
    """What a network says of its actions."""

    action: Int[AnyArray, " batch"]
    values: Float[AnyArray, "batch action"]
    quantiles: Float[AnyArray, "batch quantile action"]


def export(config: IqnConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """The networks of all agents of the first seed: those that play when it is judged."""
    return packing.to_arrays(
        {"params": jax.tree.map(lambda leaf: leaf[0], judged_params(config, state))}
    )


def request(config: IqnConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """What the first and the last agent see in two held-out worlds after some turns of a random policy."""
    held_out = jax.tree.map(lambda leaf: leaf[:EXAMPLES], dataset.held_out)
    lanes, world = lanes_of(config, held_out), make_world(config.env.rules)
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(held_out.keys[0])), WALK)
    policy, frames = policies.random_policy(config.env.rules), config.network.frames
    seen = turns.play(world, lanes, policy, key, jnp.int32(0), frames).turns.frames
    agents = np.array([0, config.env.agents - 1], np.int32)
    views = np.asarray(seen)[:, agents, np.arange(EXAMPLES)].swapaxes(0, 1)
    return {
        "views": views.reshape(EXAMPLES, *inputs(config)["views"].shape).astype(np.uint8),
        "agents": agents,
    }


def inputs(config: IqnConfig) -> dict[str, Input]:
    """What may be asked: frames, channels, rows and columns of what an agent sees, and which agent that is."""
    side = 2 * config.env.vision_radius + 1
    view = (config.network.frames, len(channels(config.env.rules)), side, side)
    return {
        "views": Input(np.uint8, view, 0, LARGEST),
        "agents": Input(np.int32, (), 0, config.env.agents - 1),
    }


def answer(
    config: IqnConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What each agent's own network expects of its four actions: up, down, left, right.

    Inputs: `views` (n, frames, channels, rows, columns), what the agent in the middle sees, the oldest frame first and
    zeros before the episode; channels: empty (always 0), wall (2 on sand, else 1; 1 outside the map), on sand ground,
    each kind of item in the config's order, agents. `agents` (n,), which agent it is, from 0.
    Outputs: `action` (n,), the greedy one; `values` (n, 4), the expected discounted return of each, a mean over
    `quantiles` (n, G, 4), its distribution at the levels (g + 1/2) / G.

    Raises:
        ValueError: other inputs or another shape, a number that no view holds, no such agent; arrays of another config.
    """
    question = Question(**validate_request("iqn", request, inputs(config)))
    params = packing.from_arrays(jax.eval_shape(partial(_fresh, config)), arrays)["params"]
    count, size = config.train.acting.quantiles, len(question.agents)
    answers = Judged(
        action=np.zeros(size, np.int32),
        values=np.zeros((size, network.ACTIONS), np.float32),
        quantiles=np.zeros((size, count, network.ACTIONS), np.float32),
    )
    for agent, rows in _blocks(question.agents):
        padded = question.views[np.resize(rows, BLOCK)].reshape(BLOCK, config.inputs)
        judged = _judge(config, params, jnp.int32(agent), jnp.asarray(padded))
        for whole, part in zip(answers, judged, strict=True):
            whole[rows] = part[: len(rows)]
    return answers._asdict()


def _blocks(
    agents: Int[np.ndarray, " questions"],
) -> Iterator[tuple[int, Int[np.ndarray, " rows"]]]:
    """Each agent and at most `BLOCK` of its questions, by their numbers."""
    for agent in np.unique(agents):
        rows = np.flatnonzero(agents == agent)
        yield from (
            (int(agent), rows[start : start + BLOCK]) for start in range(0, len(rows), BLOCK)
        )


@partial(jax.jit, static_argnums=0)
def _judge(config: IqnConfig, params: network.Params, agent: Array, views: Array) -> Judged:
    taus = midpoints(config.train.acting.quantiles)
    quantiles = network.apply(config.network, of_agent(params, agent), views, taus)
    values = quantiles.mean(1)
    return Judged(values.argmax(-1).astype(jnp.int32), values, quantiles)


def _fresh(config: IqnConfig) -> dict[str, network.Params]:
    keys = jax.random.split(jax.random.key(0), config.env.agents)
    return {"params": jax.vmap(lambda key: network.init(config.network, key, config.inputs))(keys)}
