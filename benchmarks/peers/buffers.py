"""library -> its replay on the host, full of given transitions: draws, adds of one and of many

Each is used as its own documentation shows, with its defaults, for the same five columns. A
library is imported where it is used: tests of what all share need none of them.
"""

import logging
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from benchmarks.harness import NotComparable
from benchmarks.jax_work import Continued, refuse_other_frequencies
from quatrain.replay.transitions import HostRing

Work = Callable[[], Any]

SEED, ACTIONS = 0, 4
MANY = 1000
"""Transitions of an add of many; draws whose picks are prepared for the limit."""
BINS = 250
"""Into which the drawn ones are counted."""
CHECKED = 50_000
"""Transitions that are drawn before anything is timed."""


class Transition(NamedTuple):
    """Holds one transition, or many with a leading axis; `reward` is its number."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    done: Any


class Replay(NamedTuple):
    """Holds a full replay; `to_columns` converts a draw into our columns."""

    draw: Work
    to_columns: Callable[[Any], Transition]
    add: Work | None = None
    extend: Work | None = None


def numbered(stored: int, floats: int) -> Transition:
    """Returns random transitions: untouched zeros would be one cached page."""
    rng, numbers = np.random.default_rng(SEED), np.arange(stored)
    obs, next_obs = (rng.random((stored, floats), np.float32) for _ in range(2))
    actions = (numbers % ACTIONS).astype(np.int32)
    return Transition(obs, actions, numbers.astype(np.float32), next_obs, numbers % 10 == 0)


def rows(data: Transition, at: Any) -> Transition:
    """Selects one or several transitions."""
    return Transition(*(column[at] for column in data))


def one_of(data: Transition) -> Transition:
    """Returns a transition as an environment gives it: arrays and Python numbers."""
    return Transition(*(each if each.ndim else each.item() for each in rows(data, 0)))


def ours(data: Transition, batch: int) -> Replay:
    ring, rng = HostRing(len(data.reward), rows(data, 0)), np.random.default_rng(SEED)
    ring.extend(data)
    item, many = one_of(data), rows(data, slice(MANY))
    return Replay(
        lambda: ring.sample(rng, batch),
        lambda drawn: drawn,
        lambda: ring.add(item),
        lambda: ring.extend(many),
    )


def gathers(data: Transition, batch: int) -> Replay:
    """Returns the lower bound of a draw, `np.take` of given rows, and of an add: copies."""
    # Many picks, so that the rows are no more in the cache than those of others.
    picks = cycle(np.random.default_rng(SEED).integers(0, len(data.reward), (MANY, batch)))
    kept, many = [column.copy() for column in data], rows(data, slice(MANY))

    def add_many() -> None:
        for slots, values in zip(kept, many, strict=True):
            slots[: len(values)] = values

    def draw() -> list[np.ndarray]:
        selected = next(picks)
        return [column.take(selected, 0, None, "clip") for column in kept]

    return Replay(draw, lambda _: data, extend=add_many)


def cpprb(data: Transition, batch: int) -> Replay:
    from cpprb import ReplayBuffer

    obs = {"shape": data.obs.shape[1:]}
    columns = (obs, {"dtype": np.int32}, {}, obs, {"dtype": np.bool_})
    buffer = ReplayBuffer(len(data.reward), dict(zip(Transition._fields, columns, strict=True)))
    buffer.add(**data._asdict())
    item, many = one_of(data)._asdict(), rows(data, slice(MANY))._asdict()
    return Replay(
        lambda: buffer.sample(batch),
        by_name,
        lambda: buffer.add(**item),
        lambda: buffer.add(**many),
    )


def stable_baselines3(data: Transition, batch: int, timeouts: bool = True) -> Replay:
    """Adds many as from as many environments; with `timeouts` it keeps a sixth column for them."""
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    def buffer(envs: int) -> Any:
        spaces = (Box(0, 1, data.obs.shape[1:]), Discrete(ACTIONS))
        options = {"n_envs": envs, "handle_timeout_termination": timeouts}
        return ReplayBuffer(len(data.reward), *spaces, "cpu", **options)

    def arguments(envs: int) -> tuple[Any, ...]:
        item = rows(data, slice(envs))
        return item.obs, item.next_obs, item.action, item.reward, item.done, [{}] * envs

    def columns(item: Any) -> Transition:
        names = ("observations", "actions", "rewards", "next_observations", "dones")
        return Transition(*(np.asarray(getattr(item, name)) for name in names))

    single, many = buffer(1), buffer(MANY)
    for column, slots in zip(data, columns(single), strict=True):
        slots[:] = column.reshape(slots.shape)
    single.full = True
    first, all_at_once = arguments(1), arguments(MANY)
    return Replay(
        lambda: single.sample(batch),
        columns,
        lambda: single.add(*first),
        lambda: many.add(*all_at_once),
    )


def torchrl(data: Transition, batch: int) -> Replay:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    logging.getLogger("torchrl").setLevel(logging.WARNING)  # else each storage is announced
    tensors = {name: torch.from_numpy(column) for name, column in data._asdict().items()}
    transitions = TensorDict(tensors, batch_size=[len(data.reward)])
    buffer = ReplayBuffer(storage=LazyTensorStorage(len(data.reward)), batch_size=batch)
    buffer.extend(transitions)
    item, many = transitions[0], transitions[:MANY].clone()
    return Replay(buffer.sample, by_name, lambda: buffer.add(item), lambda: buffer.extend(many))


def tianshou(data: Transition, batch: int) -> Replay:
    """Adds one by one only."""
    from tianshou.data import Batch, ReplayBuffer

    never = np.zeros(len(data.reward), bool)
    columns = (data.obs, data.action, data.reward, data.done, never, data.done, data.next_obs)
    buffer = ReplayBuffer.from_data(*columns)
    names = ("obs", "act", "rew", "obs_next", "terminated")
    item = Batch(**dict(zip(names, one_of(data), strict=True)), truncated=False, info={})
    empty = ReplayBuffer(len(data.reward))
    return Replay(
        lambda: buffer.sample(batch),
        lambda draw: Transition(*(getattr(draw[0], name) for name in names)),
        lambda: empty.add(item),
    )


def flashbax(data: Transition, batch: int) -> Replay:
    """Draws by one jitted call that also returns the next key; adds donate the old state."""
    import jax
    import jax.numpy as jnp
    from flashbax import make_item_buffer

    buffer = make_item_buffer(len(data.reward), 1, batch, add_batches=True)
    columns, item, many = ({**rows(data, slice(count))._asdict()} for count in (None, 1, MANY))
    empty = buffer.init(rows(data, 0)._asdict())
    state = jax.jit(buffer.add)(empty, jax.tree.map(jnp.asarray, columns))
    keys = [jax.random.key(SEED)]
    add = jax.jit(buffer.add, donate_argnums=0)

    @jax.jit
    def sample(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        now, later = jax.random.split(key)
        return buffer.sample(state, now).experience, later

    def draw() -> Any:
        drawn, key = jax.block_until_ready(sample(state, keys.pop()))
        keys.append(key)
        return drawn

    def adding(columns: dict[str, np.ndarray]) -> Work:
        copied = jax.tree.map(jnp.copy, state)
        return Continued(lambda state: (add(state, columns), None), copied)

    return Replay(draw, by_name, adding(item), adding(many))


def by_name(drawn: Mapping[str, Any]) -> Transition:
    return Transition(*(np.asarray(drawn[name]) for name in Transition._fields))


LIBRARIES: dict[str, Callable[[Transition, int], Replay]] = {
    "cpprb": cpprb,
    "stable-baselines3": stable_baselines3,
    "torchrl": torchrl,
    "tianshou": tianshou,
    "flashbax": flashbax,
}


def refuse_other_draws(name: str, replay: Replay, data: Transition, batch: int) -> None:
    """Raises NotComparable unless all transitions are drawn equally often and unmixed."""
    draws = [replay.to_columns(replay.draw()) for _ in range(-(-CHECKED // batch))]
    refuse_others(name, Transition(*map(np.concatenate, zip(*draws, strict=True))), data)


def refuse_others(name: str, drawn: Transition, data: Transition) -> None:
    """Raises NotComparable unless all transitions, and no others, are drawn equally often."""
    numbers, stored = drawn.reward.reshape(-1).astype(np.int64), len(data.reward)
    counts, expected = (
        np.bincount(np.minimum(each, stored) * BINS // stored, minlength=BINS + 1)
        for each in (numbers, np.arange(stored))
    )
    refuse_other_frequencies(name, counts, expected * len(numbers) / stored)
    for column, each in zip(drawn, rows(data, numbers), strict=True):
        if not np.array_equal(column.reshape(each.shape), each):
            raise NotComparable(f"{name}: draws transitions in parts of several")
