"""state -> arrays that answer without it; views of agents -> action values and the greedy action"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Shaped

from quatrain.envs.treasurehunt import policies, turns
from quatrain.envs.treasurehunt.rules import channels
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.jax import packing
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, held_out_envs
from quatrain.models.iqn.config import IqnConfig, LearnerConfig
from quatrain.models.iqn.cycle.acting import agent_params, midpoints
from quatrain.models.iqn.train import State, evaluation_params, init_params
from quatrain.replay.frames.ring import AnyArray
from quatrain.requests import Input, validate_request

# Questions per call of the compiled program: one program serves requests of any length.
BLOCK = 64
EXAMPLES = 2
# Number folded into a held-out env's key, in place of an episode, for the walk to the example.
WALK = np.uint32(2**32 - 2)
# Largest number in a view: a wall on sand counts twice.
LARGEST = 2


class ActionValues(NamedTuple):
    action: Int[AnyArray, " batch"]
    values: Float[AnyArray, "batch action"]
    quantiles: Float[AnyArray, "batch quantile action"]


def export(config: IqnConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns the networks of all agents of the first seed that act in evaluations."""
    params = jax.tree.map(lambda leaf: leaf[0], evaluation_params(config, state))
    return packing.to_arrays({"params": params})


def request(config: IqnConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns views of the first and the last agent in two held-out envs after random turns."""
    held_out = jax.tree.map(lambda leaf: leaf[:EXAMPLES], dataset.held_out)
    env_key = jax.random.wrap_key_data(jnp.asarray(held_out.keys[0]))
    rollout = turns.play(
        make_world(config.env.rules),
        held_out_envs(config, held_out),
        policies.random_policy(config.env.rules),
        jax.random.fold_in(env_key, WALK),
        first_turn=jnp.int32(0),
        turns=config.network.frames,
    )
    agents = np.array([0, config.env.agents - 1], np.int32)
    views = np.asarray(rollout.turns.frames)[:, agents, np.arange(EXAMPLES)].swapaxes(0, 1)
    shape = (EXAMPLES, *inputs(config)["views"].shape)
    return {
        "views": views.reshape(shape).astype(np.uint8),
        "agents": agents,
    }


def inputs(config: IqnConfig) -> dict[str, Input]:
    """Returns the inputs of a request: views (frame, channel, row, column) and agent numbers."""
    side = 2 * config.env.vision_radius + 1
    view = (
        config.network.frames,
        len(channels(config.env.rules)),
        side,
        side,
    )
    return {
        "views": Input(np.uint8, view, 0, LARGEST),
        "agents": Input(np.int32, (), 0, config.env.agents - 1),
    }


def _check_places(config: IqnConfig, views: np.ndarray) -> None:
    """Checks that no agent stands in a wall; a cell outside the map is one in its view.

    Raises:
        ValueError: one does.
    """
    middle = config.env.vision_radius
    wall = views[:, :, channels(config.env.rules).index("wall"), middle, middle]
    if wall.any():
        question, frame = np.argwhere(wall)[0].tolist()
        raise ValueError(
            f"iqn: views[{question}, {frame}] has a wall in the middle, where the agent is; "
            "give views around cells of the map that can be walked on"
        )


def answer(
    config: IqnConfig,
    arrays: dict[str, np.ndarray],
    request: Any,
) -> dict[str, np.ndarray]:
    """Computes what each agent's own network expects of its four actions: up, down, left, right.

    Inputs: `views` (n, frames, channels, rows, columns), what the agent in the middle sees, oldest
    frame first and zeros before the episode; channels: empty (always 0), wall (2 on sand, else 1;
    1 outside the map), on sand ground, each kind of item in the config's order, agents. `agents`
    (n,), the number of the agent, from 0.
    Outputs: `action` (n,), the greedy one; `values` (n, 4), the expected discounted return of each,
    a mean over `quantiles` (n, G, 4), its distribution at the levels (g + 1/2) / G.

    Raises:
        ValueError: other inputs or another shape, a number that no view holds, an agent in a wall
            or outside the map, no such agent; arrays of another config.
    """
    question = validate_request("iqn", request, inputs(config))
    _check_places(config, question["views"])
    keys = jax.random.split(jax.random.key(0), config.env.agents)
    template = jax.eval_shape(lambda: {"params": init_params(config, keys)})
    params = packing.from_arrays(template, arrays)["params"]
    agents = question["agents"]
    stacks = question["views"].reshape(len(agents), config.inputs)
    return action_values(config, params, stacks, agents)._asdict()


def action_values(
    config: LearnerConfig,
    params: network.Params,
    stacks: Shaped[np.ndarray, "batch inputs"],
    agents: Int[np.ndarray, " batch"],
) -> ActionValues:
    """Computes the values of stacks by the networks of these agents, in blocks of one size."""
    size = len(agents)
    actions = network.count_actions(params)
    answers = ActionValues(
        action=np.zeros(size, np.int32),
        values=np.zeros((size, actions), np.float32),
        quantiles=np.zeros((size, config.train.acting.quantiles, actions), np.float32),
    )
    for agent in np.unique(agents):
        numbers = np.flatnonzero(agents == agent)
        for block in np.split(numbers, range(BLOCK, len(numbers), BLOCK)):
            rows = jnp.asarray(stacks[np.resize(block, BLOCK)])
            values = _action_values(config, params, jnp.int32(agent), rows)
            for answer_column, block_column in zip(answers, values, strict=True):
                answer_column[block] = block_column[: len(block)]
    return answers


@partial(jax.jit, static_argnums=0)
def _action_values(
    config: LearnerConfig, params: network.Params, agent: Array, stacks: Array
) -> ActionValues:
    taus = midpoints(config.train.acting.quantiles)
    quantiles = network.apply(config.network, agent_params(params, agent), stacks, taus)
    values = quantiles.mean(1)
    return ActionValues(values.argmax(-1).astype(jnp.int32), values, quantiles)
