"""state -> arrays that answer without it; observations -> action values and the greedy action"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int, Shaped

from quatrain.frameworks.jax import from_template, to_arrays
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Scale, scaled
from quatrain.models.iqn.config import IqnConfig, LearnerConfig
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.network import agent_params, midpoints
from quatrain.replay.frames.ring import AnyArray
from quatrain.serving import Input, Served

# Questions per call of the compiled program: one program serves requests of any length.
BLOCK = 64
# Arrays that tell the numbers of agents, inputs and actions, and how many axes they have.
SIZED = {"params/hidden/kernel": 3, "params/advantage/bias": 2}
# Largest number in a view: a wall on sand counts twice.
LARGEST_IN_VIEW = 2
LARGEST = float(np.finfo(np.float32).max)


class ActionValues(NamedTuple):
    action: Int[AnyArray, " batch"]
    values: Float[AnyArray, "batch action"]
    quantiles: Float[AnyArray, "batch quantile action"]


def export(config: LearnerConfig, state: State, dataset: Any) -> dict[str, np.ndarray]:
    """Returns the networks of all agents of the first seed that are judged, and the scale of their
    observations if there is one.
    """
    params, scale = jax.tree.map(
        lambda leaf: leaf[0], (evaluation_params(config, state), state.scale)
    )
    return to_arrays({"params": params, "scale": scale})


def request(config: LearnerConfig, dataset: Any) -> dict[str, np.ndarray]:
    """Returns what the first and the last agent observe in two held-out envs."""
    example: dict[str, np.ndarray] = config.world.example(config, dataset)
    return example


def load(config: LearnerConfig, arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes what each agent's own network expects of its actions.

    Inputs: `agents` (n,), the number of the agent, from 0. In iqn's own world `views` (n, frames,
    channels, rows, columns), what the agent in the middle sees, oldest frame first and zeros before
    the episode; channels: empty (always 0), wall (2 on sand, else 1; 1 outside the map), on sand
    ground, each kind of item in the config's order, agents. In a user's environment `observations`
    (n, frames, size), flattened as Gymnasium's `flatten` does, oldest first and the mean of `scale`
    before the episode.
    Outputs: `action` (n,), the greedy one, counted from 0 (own world: up, down, left, right);
    `values` (n, actions), the expected discounted return of each, a mean over `quantiles` (n, G,
    actions), its distribution at the levels (g + 1/2) / G.

    Raises:
        ValueError: the arrays are of another config; or, when asked, an agent stands in a wall.
    """
    agents, inputs, actions = _sizes(config, arrays)
    weights = from_template(_template(config, agents, inputs, actions), arrays)
    name = "views" if isinstance(config, IqnConfig) else "observations"

    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        stacks = question[name]
        if isinstance(config, IqnConfig):
            _check_places(config, stacks)
        else:
            stacks = np.asarray(scaled(Scale(*map(np.asarray, weights["scale"])), stacks))
        stacks = stacks.reshape(-1, inputs)
        return action_values(config, weights["params"], stacks, question["agents"])._asdict()

    limits = {name: _observed(config, inputs), "agents": Input(np.int32, (), 0, agents - 1)}
    return Served(limits, compute)


def _observed(config: LearnerConfig, inputs: int) -> Input:
    frames = config.network.frames
    if isinstance(config, IqnConfig):
        side = 2 * config.env.vision_radius + 1
        view = (frames, len(config.env.channels), side, side)
        return Input(np.uint8, view, 0, LARGEST_IN_VIEW)
    return Input(np.float32, (frames, inputs // frames), -LARGEST, LARGEST)


def _sizes(config: LearnerConfig, arrays: dict[str, np.ndarray]) -> tuple[int, int, int]:
    """Returns the numbers of agents, inputs and actions: of a user's environment only the arrays
    tell them.

    Raises:
        ValueError: they are not the arrays of this config.
    """
    if isinstance(config, IqnConfig):
        return config.env.agents, config.inputs, network.ACTIONS
    # One that is missing will not fit.
    kernel, bias = (
        np.shape(arrays.get(name, np.empty((1,) * axes))) for name, axes in SIZED.items()
    )
    if (len(kernel), len(bias)) != tuple(SIZED.values()):
        raise ValueError(f"not a learner of this config: differing arrays among {[*SIZED]}")
    return kernel[0], kernel[1], bias[1]


def _template(config: LearnerConfig, agents: int, inputs: int, actions: int) -> dict[str, Any]:
    """Returns shapes of the networks and the scale."""

    def init() -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(0), agents)
        size = jnp.zeros(inputs // config.network.frames)
        return {
            "params": network.init_agents(config.network, keys, inputs, actions),
            "scale": Scale(size, size) if config.brings_env else (),
        }

    template: dict[str, Any] = jax.eval_shape(init)
    return template


def _check_places(config: IqnConfig, views: np.ndarray) -> None:
    """Checks that no agent stands in a wall; a cell outside the map is one in its view.

    Raises:
        ValueError: one does.
    """
    middle = config.env.vision_radius
    wall = views[:, :, config.env.channels.index("wall"), middle, middle]
    if wall.any():
        question, frame = np.argwhere(wall)[0].tolist()
        raise ValueError(
            f"iqn: views[{question}, {frame}] has a wall in the middle, where the agent is; "
            "give views around cells of the map that can be walked on"
        )


def action_values(
    config: LearnerConfig,
    params: network.Params,
    stacks: Shaped[np.ndarray, "batch inputs"],
    agents: Int[np.ndarray, " batch"],
) -> ActionValues:
    """Computes the values of stacks by the networks of these agents, in blocks of one size."""
    numbers, answers = [], []
    for agent in np.unique(agents):
        of_agent = np.flatnonzero(agents == agent)
        for block in np.split(of_agent, range(BLOCK, len(of_agent), BLOCK)):
            rows = jnp.asarray(stacks[np.resize(block, BLOCK)])
            values = _action_values(config, params, jnp.int32(agent), rows)
            numbers.append(block)
            answers.append([np.asarray(column)[: len(block)] for column in values])
    order = np.argsort(np.concatenate(numbers))
    columns = (np.concatenate(parts)[order] for parts in zip(*answers, strict=True))
    return ActionValues(*columns)


@partial(jax.jit, static_argnums=0)
def _action_values(
    config: LearnerConfig, params: network.Params, agent: Array, stacks: Array
) -> ActionValues:
    taus = midpoints(config.train.acting.quantiles)
    quantiles = network.apply(config.network, agent_params(params, agent), stacks, taus)
    values = quantiles.mean(1)
    return ActionValues(values.argmax(-1).astype(jnp.int32), values, quantiles)
