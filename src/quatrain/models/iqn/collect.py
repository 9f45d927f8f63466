"""config, seed -> transitions of a random policy in the training envs, and held-out envs"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int8, Int16, Key, UInt32

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.map_arrays import walls
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.turns import EnvStates, World
from quatrain.envs.treasurehunt.world import make_world
from quatrain.errors import DatasetMismatch
from quatrain.models.iqn.config import IqnConfig
from quatrain.replay.frames.ring import AnyArray, Transitions

# Purposes of the key of a whole run; `train` takes the last.
PREFILL, HELD_OUT, LEARNERS = range(3)
# Purposes of a seed's key in the prefill.
WORLDS, PLAY = range(2)


class HeldOut(NamedTuple):
    """Holds envs at the start of an episode; the keys determine start cells and spawning."""

    keys: UInt32[np.ndarray, "env 2"]
    positions: Int16[np.ndarray, "env agent 2"]
    items: Int8[np.ndarray, "env height width"]


class Dataset(NamedTuple):
    """Holds the prefill of each seed's replay (leading axis seed), and the held-out envs.

    The last turn of the prefill counts as final, because training begins with new episodes.
    """

    train: Transitions
    held_out: HeldOut


def dataset_type(config: IqnConfig) -> type[Dataset]:
    return Dataset


def collect(config: IqnConfig, seed: int) -> Dataset:
    """Plays `collect.turns` turns of a uniform random policy per env, and draws held-out envs."""
    world = make_world(config.env.rules)
    key = jax.random.key(seed)
    keys = jax.random.split(jax.random.fold_in(key, HELD_OUT), config.collect.held_out_worlds)
    state = jax.jit(lambda keys: turns.start(world, keys, frames=1).state)(keys)
    held_out = (jax.random.key_data(keys), state.positions, state.items)
    return Dataset(
        train=prefill(config, world, jax.random.fold_in(key, PREFILL)),
        held_out=HeldOut(*map(np.asarray, held_out)),
    )


def prefill(config: IqnConfig, world: World, key: Key[Array, ""]) -> Transitions:
    """Returns transitions of a uniform random policy, (seed, turn, ...)."""
    return jax.tree.map(np.asarray, _prefill(config, world, key))


@partial(jax.jit, static_argnums=(0, 1))
def _prefill(config: IqnConfig, world: World, key: Array) -> Transitions:
    def play_seed(seed: Array) -> Transitions:
        base_key = jax.random.fold_in(key, seed)
        keys = jax.random.split(jax.random.fold_in(base_key, WORLDS), config.env.worlds)
        rollout = turns.play(
            world,
            turns.start(world, keys, frames=1),
            random_policy(config.env.rules),
            jax.random.fold_in(base_key, PLAY),
            first_turn=jnp.int32(0),
            turns=config.collect.turns,
        )
        transitions = to_transitions(rollout.turns)
        final = rollout.turns.final.at[-1].set(~rollout.turns.terminated[-1])
        return transitions._replace(final=final)

    return jax.lax.map(play_seed, jnp.arange(config.seeds))


def to_transitions(turn: turns.Turn) -> Transitions:
    """Returns the columns of turns that the replay stores."""
    return Transitions(*(getattr(turn, name) for name in Transitions._fields))


def held_out_envs(config: IqnConfig, held_out: HeldOut) -> EnvStates:
    """Returns the held-out envs, ready for their first turn."""
    keys = jax.random.wrap_key_data(jnp.asarray(held_out.keys))
    envs = turns.start(make_world(config.env.rules), keys, config.network.frames)
    return envs._replace(
        state=envs.state._replace(
            positions=jnp.asarray(held_out.positions),
            items=jnp.asarray(held_out.items),
        )
    )


def check(config: IqnConfig, dataset: Dataset) -> None:
    """Raises if this config cannot have produced the dataset.

    Raises:
        DatasetMismatch: a size, or a value that is impossible in this world.
    """
    problem = _wrong_shape(config, dataset) or _impossible_value(config, dataset)
    if problem:
        raise DatasetMismatch(
            f"the dataset was not collected in the world of iqn.env: {problem}; run `dvc repro`"
        )


def _wrong_shape(config: IqnConfig, dataset: Dataset) -> str | None:
    rules = config.env.rules
    held_out = config.collect.held_out_worlds
    per_env = (config.seeds, config.collect.turns, config.env.worlds)
    per_agent = (*per_env[:2], rules.agents, config.env.worlds)
    expected = {
        "frames": (*per_agent, config.inputs // config.network.frames),
        "actions": per_agent,
        "rewards": per_agent,
        "terminated": per_env,
        "final": per_env,
        "turn": per_env,
        "held_out/keys": (held_out, 2),
        "held_out/positions": (held_out, rules.agents, 2),
        "held_out/items": (held_out, *walls(rules.map).shape),
    }
    arrays = (*dataset.train, *dataset.held_out)
    for (name, shape), array in zip(expected.items(), arrays, strict=True):
        if array.shape != shape:
            return f"{name} have the shape {array.shape}, not {shape}"
    return None


def _impossible_value(config: IqnConfig, dataset: Dataset) -> str | None:
    rules = config.env.rules
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
            train.final[:, :-1],
            train.turn[:, :-1] == rules.max_turns,
        )
        and train.final[:, -1].all(),
    }
    return next(
        (f"it has {name}" for name, passed in checks.items() if not passed),
        None,
    )


def _within(values: AnyArray, high: int) -> bool:
    return bool(values.size == 0 or (values.min() >= 0 and values.max() <= high))
