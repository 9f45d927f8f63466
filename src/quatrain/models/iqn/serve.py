"""state -> arrays that answer without it; observations -> action values and the greedy action"""

from typing import Any

import jax
import numpy as np

from quatrain.envs.host.masks import draw_legal
from quatrain.frameworks.jax import from_template, to_arrays
from quatrain.models.iqn import network
from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.serving import Input, Served


def export(config: LearnerConfig, state: State, dataset: Any) -> dict[str, np.ndarray]:
    """Returns the networks of all agents of the first seed that are judged, and the scale of their
    observations if there is one.
    """
    params, scale = network.pick((evaluation_params(config, state), state.scale), 0)
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
    before the episode. An image comes first, with channels last; 1 for each legal action and 0 for
    others last, where the environment has masks.
    Outputs: `action` (n,), the greedy one, counted from 0 (own world: up, down, left, right);
    `values` (n, actions), the expected discounted return of each, a mean over `quantiles` (n, G,
    actions), its distribution at the levels (g + 1/2) / G.

    Raises:
        ValueError: the arrays are of another config; or, when asked, an agent stands in a wall.
    """
    world = config.world
    sizes = world.input_sizes(config, arrays)
    inputs = config.network.frames * sizes.frame

    def init() -> dict[str, Any]:
        keys = jax.random.split(jax.random.key(0), sizes.agents)
        params = network.init_agents(config.network, keys, inputs, sizes.actions, sizes.layout)
        return {"params": params, "scale": world.empty_scale(sizes.frame)}

    weights = from_template(jax.eval_shape(init), arrays)
    values_of = network.values_by(config, weights["params"])

    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        stacks = world.read(config, weights["scale"], question[world.INPUT]).reshape(-1, inputs)
        return values_of(stacks, question["agents"])._asdict()

    observed = Input(*world.input_limits(config, sizes))
    agents = Input(np.int32, (), 0, sizes.agents - 1)

    def sample(question: dict[str, np.ndarray], draws: np.random.Generator) -> np.ndarray:
        greedy = compute(question)["action"]
        explores = draws.random(len(greedy)) < config.train.acting.epsilon.end
        has_mask = any(sizes.layout[-1:])
        legal = question[world.INPUT][:, -1, -sizes.actions :] if has_mask else 1
        masks = np.broadcast_to(legal, (len(greedy), sizes.actions))
        return np.where(explores, draw_legal((sizes.actions,), draws, masks), greedy)

    return Served({world.INPUT: observed, "agents": agents}, compute, sample)
