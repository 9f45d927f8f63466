"""config, seed -> what a random policy met in the training worlds, and the worlds in which a learner is judged."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Int8, Int16, Key, UInt32

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.layouts import walls
from quatrain.envs.treasurehunt.policies import random_policy
from quatrain.envs.treasurehunt.turns import Lanes, World
from quatrain.envs.treasurehunt.world import State, make_world
from quatrain.errors import DatasetMismatch
from quatrain.models.iqn.config import IqnConfig
from quatrain.replay.frames import AnyArray, Transitions

PREFILL, HELD_OUT, LEARNERS = range(3)
"""Purposes of the key of a whole run; `train` takes the last."""
WORLDS, PLAY = range(2)
"""Purposes of a seed's key in the prefill."""


class HeldOut(NamedTuple):
    """Worlds of one episode before their first turn; with the key they fix start and spawn noise."""

    keys: UInt32[np.ndarray, "worlds 2"]
    positions: Int16[np.ndarray, "worlds agents 2"]
    items: Int8[np.ndarray, "worlds height width"]


class Dataset(NamedTuple):
    """The prefill of each seed's replay (a leading axis `seeds`), and the held-out worlds."""

    train: Transitions
    held_out: HeldOut


def collect(config: IqnConfig, seed: int) -> Dataset:
    """`collect.turns` turns of a uniform random policy in each training world, and the held-out worlds."""
    world = make_world(config.env.rules)
    prefill_key, held_out_key = (
        jax.random.fold_in(jax.random.key(seed), purpose) for purpose in (PREFILL, HELD_OUT)
    )
    return Dataset(prefill(config, world, prefill_key), _held_out(config, world, held_out_key))


def prefill(config: IqnConfig, world: World, key: Key[Array, ""]) -> Transitions:
    """Transitions of a uniform random policy, (seeds, turns, ...)."""
    return jax.tree.map(np.asarray, _prefill(config, world, key))


@partial(jax.jit, static_argnums=(0, 1))
def _prefill(config: IqnConfig, world: World, key: Array) -> Transitions:
    def one(seed: Array) -> Transitions:
        base_key = jax.random.fold_in(key, seed)
        keys = jax.random.split(jax.random.fold_in(base_key, WORLDS), config.env.worlds)
        lanes = turns.start(world, keys, frames=1)
        play_key = jax.random.fold_in(base_key, PLAY)
        played = turns.play(
            world,
            lanes,
            random_policy(config.env.rules),
            play_key,
            jnp.int32(0),
            config.collect.turns,
        )
        return transitions_of(played.turns)

    return jax.lax.map(one, jnp.arange(config.seeds))


def transitions_of(turn: turns.Turn) -> Transitions:
    """What the replay stores of turns."""
    return Transitions(*(getattr(turn, name) for name in Transitions._fields))


def _held_out(config: IqnConfig, world: World, key: Key[Array, ""]) -> HeldOut:
    keys = jax.random.split(key, config.collect.held_out_worlds)
    state: State = jax.jit(lambda keys: turns.start(world, keys, frames=1).state)(keys)
    return HeldOut(*map(np.asarray, (jax.random.key_data(keys), state.positions, state.items)))


def lanes_of(config: IqnConfig, held_out: HeldOut) -> Lanes:
    """The held-out worlds, ready for their first turn."""
    keys = jax.random.wrap_key_data(jnp.asarray(held_out.keys))
    lanes = turns.start(make_world(config.env.rules), keys, config.network.frames)
    state = lanes.state._replace(
        positions=jnp.asarray(held_out.positions), items=jnp.asarray(held_out.items)
    )
    return lanes._replace(state=state)


def check(config: IqnConfig, dataset: Dataset) -> None:
    """Refuse a dataset that this config cannot have produced.

    Raises:
        DatasetMismatch: a size, or a value that no turn of this world can show.
    """
    data, held_out, rules = dataset.train, dataset.held_out, config.env.rules
    height, width = len(rules.map.rows), len(rules.map.rows[0])
    of_agents = (config.seeds, config.collect.turns, rules.agents, config.env.worlds)
    of_worlds, worlds = (*of_agents[:2], config.env.worlds), config.collect.held_out_worlds
    wanted = {
        "frames": (*of_agents, config.inputs // config.network.frames),
        "actions": of_agents,
        "rewards": of_agents,
        "terminated": of_worlds,
        "truncated": of_worlds,
        "turn": of_worlds,
        "held_out/keys": (worlds, 2),
        "held_out/positions": (worlds, rules.agents, 2),
        "held_out/items": (worlds, height, width),
    }
    judged = {f"held_out/{name}": array for name, array in held_out._asdict().items()}
    for name, array in (data._asdict() | judged).items():
        if array.shape != wanted[name]:
            raise _refused(f"{name} have the shape {array.shape}, not {wanted[name]}")
    payable = {
        rules.wall_value,
        rules.agent_value,
        0.0,
        *(entity.value for entity in rules.entities),
    }
    for name, fits in (
        ("frames outside 0..2", _within(data.frames, 0, 2)),
        ("actions outside 0..3", _within(data.actions, 0, 3)),
        ("held-out items of an unknown kind", _within(held_out.items, 0, len(rules.entities))),
        (
            "rewards that nothing pays",
            bool(np.isin(data.rewards, np.array(sorted(payable), np.float32)).all()),
        ),
        (
            "held-out agents in walls",
            not walls(rules.map)[tuple(np.moveaxis(held_out.positions, -1, 0))].any(),
        ),
        (
            "ends at other turns",
            bool(np.array_equal(data.truncated, data.turn == rules.max_turns - 1)),
        ),
    ):
        if not fits:
            raise _refused(f"it has {name}")


def _within(values: AnyArray, low: int, high: int) -> bool:
    return bool(values.size == 0 or (values.min() >= low and values.max() <= high))


def _refused(why: str) -> DatasetMismatch:
    return DatasetMismatch(
        f"the dataset was not collected in the world of iqn.env: {why}; run `dvc repro`"
    )
