"""rules -> the treasure hunt with one agent under the Gymnasium API, in one compiled program."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.spaces import Box, Discrete
from jax import Array, lax
from jaxtyping import Bool, Float32, Int8, Key, UInt8

from quatrain.envs.adapters.settings import configure
from quatrain.envs.adapters.simulation import Outcome, Simulation, check_discrete
from quatrain.envs.drawing import draw_treasure_hunt
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.turns import World, turn_order
from quatrain.envs.treasurehunt.world import MOVES, State, make_world
from quatrain.errors import DataError

NAME = "quatrain/TreasureHunt-v0"
# A wall on sand counts in both layers.
GREATEST = 2
# Number folded in for the order of agents; neither a turn nor the start cells have it.
_ORDER = 2**32 - 2
_MAPS = ("height", "width", "layout", "layout_file")


class Turn(NamedTuple):
    """Holds worlds at the start of their next turn, and what the last one gave.

    In all worlds agents act one after another, on what they saw at the start of the turn.
    """

    state: State
    observations: Int8[Array, "env agent frame"]
    rewards: Float32[Array, "env agent"]
    truncated: Bool[Array, " env"]


class AgentsSimulation(Simulation):
    """Steps worlds of several agents; arrays have an axis of agents behind that of worlds."""

    _turn: Turn

    def __init__(self, rules: Env, num_envs: int) -> None:
        side = 2 * rules.vision_radius + 1
        space = Box(0, GREATEST, (len(rules.channels), side, side), np.int8)
        super().__init__(num_envs, space, Discrete(len(MOVES)))
        self.rules = rules
        self._world = make_world(rules)

    def seed(self, seed: int) -> None:
        keys = jax.random.split(jax.random.key(seed % 2**32), self.num_envs)
        self._turn = _begin(self._world, keys)

    def begin(self, mask: Bool[np.ndarray, " env"]) -> None:
        self._turn = _restart(self._world, self._turn, jnp.asarray(mask))

    def step(self, actions: np.ndarray) -> Outcome:
        check_discrete(actions, len(MOVES))
        moves = jnp.asarray(actions, jnp.int32).reshape(self.num_envs, -1)
        self._turn = _play(self._world, self._turn.state, moves)
        truncated = np.array(self._turn.truncated)
        rewards = np.asarray(self._turn.rewards, np.float64).reshape(actions.shape)
        return Outcome(rewards, np.zeros_like(truncated), truncated)

    @property
    def observations(self) -> Int8[np.ndarray, "env *agent channel row column"]:
        shape = self.observation_space.shape or ()
        return np.asarray(self._turn.observations).reshape(self.num_envs, -1, *shape)

    def picture(self, env: int) -> UInt8[np.ndarray, "height width 3"]:
        items, positions = (np.asarray(column[env]) for column in self._turn.state[:2])
        values = [entity.value for entity in self.rules.entities]
        return draw_treasure_hunt(self.rules.map.rows, values, items, positions)


class TreasureHuntSimulation(AgentsSimulation):
    """Steps worlds of one agent: up, down, left, right; the reward is that of the cell entered."""

    @property
    def observations(self) -> np.ndarray:
        return super().observations[:, 0]


def simulate(num_envs: int, **settings: Any) -> TreasureHuntSimulation:
    """Returns treasure hunts of one agent; settings are keys of `iqn.env` in params.yaml.

    `layout` is a map as text; with it, height and width need not be set to None.

    Raises:
        ConfigError: a setting is not allowed.
        DataError: there are several agents.
    """
    rules = configure_rules({"agents": 1} | settings)
    if rules.agents != 1:
        raise DataError(
            f"{NAME}: agents = {rules.agents}: a Gymnasium environment has one agent; for more use "
            "quatrain.envs.adapters.treasurehunt_parallel.parallel_env"
        )
    return TreasureHuntSimulation(rules, num_envs)


def configure_rules(settings: dict[str, Any]) -> Env:
    """Returns the rules of `iqn.env` with changes; a map replaces the map of the defaults.

    Raises:
        DataError: a setting is not allowed.
    """
    if settings.keys() & {"layout", "layout_file"}:
        settings = dict.fromkeys(_MAPS) | settings
    return configure(NAME, Env, "iqn", settings)


@partial(jax.jit, static_argnames="world")
def _begin(world: World, keys: Key[Array, " env"]) -> Turn:
    """Returns worlds before their first episode."""
    return _first_turn(world, keys, jnp.full(len(keys), -1))


@partial(jax.jit, static_argnames="world")
def _restart(world: World, turn: Turn, mask: Bool[Array, " env"]) -> Turn:
    """Starts the next episode in the marked worlds."""
    first = _first_turn(world, turn.state.key, turn.state.episode + 1)
    return jax.tree.map(
        lambda new, old: jnp.where(mask.reshape(-1, *[1] * (old.ndim - 1)), new, old), first, turn
    )


@partial(jax.jit, static_argnames="world")
def _play(world: World, state: State, actions: Array) -> Turn:
    state, rewards = jax.vmap(partial(_act, world))(state, actions)
    end = jax.vmap(world.end_turn)(state)
    state = jax.vmap(world.begin_turn)(end.state)
    return Turn(state, _observe(world, state), rewards, end.truncated)


def _first_turn(world: World, keys: Array, episodes: Array) -> Turn:
    state = jax.vmap(world.begin_turn)(jax.vmap(world.reset)(keys, episodes))
    rewards = jnp.zeros((len(episodes), world.agents), jnp.float32)
    return Turn(state, _observe(world, state), rewards, jnp.zeros(len(episodes), bool))


def _act(world: World, state: State, actions: Array) -> tuple[State, Array]:
    """Moves the agents of one world, one after another."""
    key = jax.random.fold_in(jax.random.fold_in(state.key, state.episode), _ORDER)
    order = turn_order(world, jax.random.fold_in(key, state.turn))

    def act(state: State, agent: Array) -> tuple[State, Array]:
        result = world.act(state, agent, actions[agent])
        return result.state, result.reward

    state, rewards = lax.scan(act, state, order)
    return state, jnp.zeros_like(rewards).at[order].set(rewards)


def _observe(world: World, state: State) -> Int8[Array, "env agent frame"]:
    agents = jnp.arange(world.agents)
    return jax.vmap(jax.vmap(world.observe, (None, 0)), (0, None))(state, agents)
