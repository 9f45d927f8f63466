"""iqn's own world: treasure hunts that are stepped and stored inside compiled programs"""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int8, Int16, Key, UInt32

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.config import Env
from quatrain.envs.treasurehunt.policies import ACTIONS, random_policy
from quatrain.envs.treasurehunt.turns import EnvStates, Policy, Turn, World
from quatrain.envs.treasurehunt.world import AGENT, WALL, make_world, walls
from quatrain.models.iqn import compiled
from quatrain.models.iqn.collect import EXAMPLES, Sizes, check_arrays
from quatrain.models.iqn.compiled import PlayState, begin_play, to_transitions
from quatrain.models.iqn.compiled import play_template as play_template
from quatrain.models.iqn.config import IqnConfig
from quatrain.replay.frames.ring import AnyArray, Transitions

# Purposes of the key of a dataset, and of a seed's key in the prefill.
PREFILL, HELD_OUT = range(2)
WORLDS, PLAY = range(2)
INPUT = "views"
# Largest number in a view: a wall on sand counts twice.
LARGEST_IN_VIEW = 2
# Whether compiled programs step the world.
COMPILED = True
# Number folded into a held-out env's key, in place of an episode, for the walk to the example.
WALK = np.uint32(2**32 - 2)


class HeldOut(NamedTuple):
    """Holds envs at the start of an episode; the keys determine start cells and spawning."""

    keys: UInt32[np.ndarray, "env 2"]
    positions: Int16[np.ndarray, "env agent 2"]
    items: Int8[np.ndarray, "env height width"]


class Dataset(NamedTuple):
    """Holds the prefill of each seed's replay (leading axis seed), and the held-out envs."""

    train: Transitions
    held_out: HeldOut


def collect(config: IqnConfig, seed: int) -> Dataset:
    """Plays `collect.turns` turns of a uniform random policy per env, and draws held-out envs."""
    world = make_world(config.env)
    key = jax.random.key(seed)
    keys = jax.random.split(jax.random.fold_in(key, HELD_OUT), config.collect.held_out_worlds)
    state = jax.jit(lambda keys: turns.start(world, keys, frames=1).state)(keys)
    held_out = (jax.random.key_data(keys), state.positions, state.items)
    return Dataset(
        train=jax.device_get(prefill(config, world, jax.random.fold_in(key, PREFILL))),
        held_out=HeldOut(*map(np.asarray, held_out)),
    )


@partial(jax.jit, static_argnums=(0, 1))
def prefill(config: IqnConfig, world: World, key: Key[Array, ""]) -> Transitions:
    """Returns transitions of a uniform random policy, (seed, turn, ...)."""

    def play_seed(seed: Array) -> Transitions:
        base_key = jax.random.fold_in(key, seed)
        keys = jax.random.split(jax.random.fold_in(base_key, WORLDS), config.env.worlds)
        envs, policy = turns.start(world, keys, frames=1), random_policy(config.env)
        play_key = jax.random.fold_in(base_key, PLAY)
        played = turns.play(world, envs, policy, play_key, 0, config.collect.turns).turns
        final = played.final.at[-1].set(~played.terminated[-1])
        return to_transitions(played)._replace(final=final)

    return jax.lax.map(play_seed, jnp.arange(config.seeds))


def held_out_envs(config: IqnConfig, held_out: HeldOut) -> EnvStates:
    """Returns the held-out envs, ready for their first turn."""
    keys = jax.random.wrap_key_data(jnp.asarray(held_out.keys))
    envs = turns.start(make_world(config.env), keys, config.network.frames)
    positions, items = jnp.asarray(held_out.positions), jnp.asarray(held_out.items)
    return envs._replace(state=envs.state._replace(positions=positions, items=items))


def sizes(config: IqnConfig, _dataset: Any) -> Sizes:
    return Sizes(config.env.agents, config.env.frame_size, ACTIONS)


def check(config: IqnConfig, dataset: Dataset) -> None:
    """Raises DatasetMismatch if a size differs, or a value is none of this world."""
    worlds = config.collect.held_out_worlds
    held_out = {
        "held_out/keys": (worlds, 2),
        "held_out/positions": (worlds, config.env.agents, 2),
        "held_out/items": (worlds, *walls(config.env.map).shape),
    }
    check_arrays(config, dataset, "the world of iqn.env", held_out, impossible_value)


def impossible_value(config: IqnConfig, dataset: Dataset) -> str | None:
    """Returns what of a dataset of the right shapes this world never shows, or None."""
    rules = config.env
    train, held_out = dataset
    item_values = [entity.value for entity in rules.entities]
    rewards = np.array([rules.wall_value, rules.agent_value, 0.0, *item_values], np.float32)
    y, x = np.moveaxis(held_out.positions, -1, 0)
    checks = {
        "frames outside 0..2": _within(train.frames, 2),
        "actions outside 0..3": _within(train.actions, 3),
        "held-out items of an unknown kind": _within(held_out.items, len(rules.entities)),
        "rewards that nothing pays": np.isin(train.rewards, rewards).all(),
        "held-out agents in walls": not walls(rules.map)[y, x].any(),
        "ends at other turns": np.array_equal(
            train.final[:, :-1], train.turn[:, :-1] == rules.max_turns
        )
        and train.final[:, -1].all(),
    }
    return next((f"it has {name}" for name, passed in checks.items() if not passed), None)


def _within(values: AnyArray, high: int) -> bool:
    return bool(values.size == 0 or (values.min() >= 0 and values.max() <= high))


# Playing.


def scale_of(config: IqnConfig, dataset: Dataset) -> tuple[()]:
    """Returns nothing: views are inputs as they are."""
    return ()


def replay_inputs(config: IqnConfig, dataset: Dataset) -> Transitions:
    """Returns the prefill as the replay stores it."""
    return dataset.train


def init_play_state(
    config: IqnConfig, dataset: Dataset, env_keys: Key[Array, " seed"]
) -> PlayState:
    """Returns the states of all seeds before the first turn, with the prefill's counts."""
    return begin_play(config, make_world(config.env), dataset.train, env_keys)


def named_events(env: Env) -> dict[str, int]:
    """Returns metric name -> the event that it counts; `items_NAME` for each kind of item."""
    items = {f"items_{entity.name}": kind for kind, entity in enumerate(env.entities, start=1)}
    return {"wall_bumps": WALL, "blocked": AGENT, **items}


def event_rates(config: IqnConfig, turn: Turn) -> dict[str, Float[Array, " agent"]]:
    """Computes, per agent, the mean reward of a turn and the share of turns with each event.

    Final turns do not count; without others all are 0.
    """
    transitions = ~turn.final[:, None]
    number = jnp.maximum(transitions.sum(), 1)
    return compiled.event_rates(config, turn) | {
        name: ((turn.events == event) & transitions).sum((0, 2)) / number
        for name, event in named_events(config.env).items()
    }


def greedy_returns(
    config: IqnConfig,
    world: World,
    policy: Policy,
    env_key: Key[Array, ""],
    play_key: Key[Array, ""],
) -> Float[Array, " agent"]:
    """Computes the mean return of an episode in `evaluation_worlds` envs."""
    keys = jax.random.split(env_key, config.train.evaluation_worlds)
    envs = turns.start(world, keys, config.network.frames)
    played = turns.play(world, envs, policy, play_key, 0, config.env.max_turns).turns
    return played.rewards.sum(0).mean(-1)


# Serving.


def input_sizes(config: IqnConfig, _arrays: dict[str, np.ndarray]) -> Sizes:
    """Returns the sizes of the networks."""
    return sizes(config, None)


def empty_scale(_frame: int) -> tuple[()]:
    """Returns a scale of the type of `scale_of`, of one seed."""
    return ()


def example(config: IqnConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """Returns views of the first and the last agent in two held-out envs after random turns."""
    held_out = jax.tree.map(lambda leaf: leaf[:EXAMPLES], dataset.held_out)
    env_key = jax.random.wrap_key_data(jnp.asarray(held_out.keys[0]))
    world, policy = make_world(config.env), random_policy(config.env)
    envs, key = held_out_envs(config, held_out), jax.random.fold_in(env_key, WALK)
    played = turns.play(world, envs, policy, key, 0, config.network.frames).turns
    agents = np.array([0, config.env.agents - 1], np.int32)
    views = np.asarray(played.frames)[:, agents, np.arange(EXAMPLES)].swapaxes(0, 1)
    _, shape, *_ = input_limits(config, sizes(config, None))
    return {INPUT: views.reshape(-1, *shape).astype(np.uint8), "agents": agents}


def input_limits(config: IqnConfig, _sizes: Sizes) -> Any:
    """Returns dtype, axes, least and most of what can be asked: a view of each frame."""
    side = 2 * config.env.vision_radius + 1
    shape = (config.network.frames, len(config.env.channels), side, side)
    return np.uint8, shape, 0, LARGEST_IN_VIEW


def read(config: IqnConfig, _scale: tuple[()], views: np.ndarray) -> np.ndarray:
    """Returns inputs of views; a cell outside the map is a wall in one.

    Raises:
        ValueError: an agent stands in a wall.
    """
    middle = config.env.vision_radius
    wall = views[:, :, config.env.channels.index("wall"), middle, middle]
    if wall.any():
        question, frame = np.argwhere(wall)[0].tolist()
        raise ValueError(
            f"iqn: {INPUT}[{question}, {frame}] has a wall in the middle, where the agent is; "
            "give views around cells of the map that can be walked on"
        )
    return views
