"""name of a library -> its replay on the host, full of given transitions: draws, single adds and
adds of many

Each is used as its own documentation shows, with its defaults, for the same five columns. A
library is imported where it
is used: a missing one does not affect the others.
"""

import logging
from collections.abc import Callable, Mapping
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chisquare

from benchmarks.table import NotTheSame
from quatrain.replay.transitions import HostRing

Work = Callable[[], Any]

SEED = 0
ACTIONS = 4
MANY = 1000
"""Transitions of an add of many."""
DRAWS = 1000
"""Whose picks are prepared for the limit."""
BINS = 250
"""Into which the drawn ones are counted."""
CHECKED = 50_000
"""Transitions that are drawn before anything is timed."""


class Transition(NamedTuple):
    """Holds one transition, or many with a leading axis. `reward` is its number, so that a draw
    identifies it.
    """

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
    return Transition(
        obs,
        (numbers % ACTIONS).astype(np.int32),
        numbers.astype(np.float32),
        next_obs,
        numbers % 10 == 0,
    )


def rows(data: Transition, at: Any) -> Transition:
    """Selects one or several transitions."""
    return Transition(*(column[at] for column in data))


def one_of(data: Transition) -> Transition:
    """Returns a transition as an environment gives it: arrays and Python numbers."""
    first = rows(data, 0)
    return first._replace(
        action=int(first.action), reward=float(first.reward), done=bool(first.done)
    )


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


class Unchecked(HostRing[Transition]):
    """Ours, with what does not fit written all the same."""

    def add(self, transition: Transition) -> None:
        head = self._head
        for slots, value in zip(self._slots, transition):  # noqa: B905 - as in HostRing.add
            slots[head] = value
        self._advance(1)


def gathers(data: Transition, batch: int) -> Replay:
    """Returns the lower bound of a draw (`np.take` of given rows) and of an add (copies to given
    slots).
    """
    # Many, so that a draw meets rows that are no more in the cache than those of others.
    picks = cycle(np.random.default_rng(SEED).integers(0, len(data.reward), (DRAWS, batch)))
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

    shape = {"shape": data.obs.shape[1:]}
    kinds: dict[str, Any] = {
        "obs": shape,
        "action": {"dtype": np.int32},
        "reward": {},
        "next_obs": shape,
    }
    buffer = ReplayBuffer(len(data.reward), kinds | {"done": {"dtype": np.bool_}})
    buffer.add(**data._asdict())
    item, many = one_of(data)._asdict(), rows(data, slice(MANY))._asdict()
    return Replay(
        lambda: buffer.sample(batch),
        _of_dictionary,
        lambda: buffer.add(**item),
        lambda: buffer.add(**many),
    )


def stable_baselines3(data: Transition, batch: int, timeouts: bool = True) -> Replay:
    """Adds many as from as many environments; `timeouts`: its default keeps a sixth column for
    them.
    """
    buffers = {lanes: _stable_baselines3_buffer(data, lanes, timeouts) for lanes in (1, MANY)}
    single, many = buffers[1], buffers[MANY]
    for column, slots in zip(
        data,
        (
            single.observations,
            single.actions,
            single.rewards,
            single.next_observations,
            single.dones,
        ),
        strict=True,
    ):
        slots[:] = column.reshape(slots.shape)
    single.full = True
    arguments = {lanes: _stable_baselines3_arguments(rows(data, slice(lanes))) for lanes in buffers}

    def lines(drawn: Any) -> Transition:
        result = (
            drawn.observations,
            drawn.actions,
            drawn.rewards,
            drawn.next_observations,
            drawn.dones,
        )
        return Transition(*(column.numpy() for column in result))

    return Replay(
        lambda: single.sample(batch),
        lines,
        lambda: single.add(*arguments[1]),
        lambda: many.add(*arguments[MANY]),
    )


def _stable_baselines3_buffer(data: Transition, lanes: int, timeouts: bool) -> Any:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    box = Box(0, 1, data.obs.shape[1:])
    return ReplayBuffer(
        len(data.reward),
        box,
        Discrete(ACTIONS),
        "cpu",
        n_envs=lanes,
        handle_timeout_termination=timeouts,
    )


def _stable_baselines3_arguments(lanes: Transition) -> tuple[Any, ...]:
    infos: list[dict[str, Any]] = [{} for _ in lanes.reward]
    return lanes.obs, lanes.next_obs, lanes.action, lanes.reward, lanes.done, infos


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
    return Replay(
        buffer.sample, _of_dictionary, lambda: buffer.add(item), lambda: buffer.extend(many)
    )


def tianshou(data: Transition, batch: int) -> Replay:
    """Adds one by one only."""
    from tianshou.data import Batch, ReplayBuffer

    never = np.zeros(len(data.reward), bool)
    buffer = ReplayBuffer.from_data(
        data.obs, data.action, data.reward, data.done, never, data.done, data.next_obs
    )
    item = one_of(data)
    step = Batch(
        obs=item.obs,
        act=item.action,
        rew=item.reward,
        terminated=item.done,
        truncated=False,
        obs_next=item.next_obs,
        info={},
    )
    adding = ReplayBuffer(len(data.reward))

    def lines(drawn: Any) -> Transition:
        result = drawn[0]
        return Transition(result.obs, result.act, result.rew, result.obs_next, result.terminated)

    return Replay(lambda: buffer.sample(batch), lines, lambda: adding.add(step))


def flashbax(data: Transition, batch: int) -> Replay:
    """Draws by one jitted call that also returns the next key; adds donate the old state."""
    import jax
    import jax.numpy as jnp
    from flashbax import make_item_buffer

    buffer = make_item_buffer(len(data.reward), 1, batch, add_batches=True)
    columns, item, many = ({**rows(data, slice(count))._asdict()} for count in (None, 1, MANY))
    state = jax.jit(buffer.add)(
        buffer.init(rows(data, 0)._asdict()), jax.tree.map(jnp.asarray, columns)
    )
    lock, keys = [jax.tree.map(jnp.copy, state)], [jax.random.key(SEED)]
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
        return lambda: lock.append(jax.block_until_ready(add(lock.pop(), columns)))

    return Replay(draw, _of_dictionary, adding(item), adding(many))


def _of_dictionary(drawn: Mapping[str, Any]) -> Transition:
    return Transition(*(np.asarray(drawn[name]) for name in Transition._fields))


LIBRARIES: dict[str, Callable[[Transition, int], Replay]] = {
    "cpprb": cpprb,
    "stable-baselines3": stable_baselines3,
    "torchrl": torchrl,
    "tianshou": tianshou,
    "flashbax": flashbax,
}


def refuse_other_draws(name: str, replay: Replay, data: Transition, batch: int) -> None:
    """Checks that all transitions are drawn equally often and unmixed.

    Raises:
        NotTheSame: they are not.
    """
    drawn = [replay.to_columns(replay.draw()) for _ in range(-(-CHECKED // batch))]
    result = Transition(*map(np.concatenate, zip(*drawn, strict=True)))
    number = result.reward.reshape(-1).astype(np.int64)
    stored = len(data.reward)
    if number.min() < 0 or number.max() >= stored:
        raise NotTheSame(f"{name}: draws a transition that was never added")
    for column, expected in zip(result, rows(data, number), strict=True):
        if not np.array_equal(column.reshape(expected.shape), expected):
            raise NotTheSame(f"{name}: draws transitions in parts of several")
    evenness = chisquare(np.bincount(number * BINS // stored, minlength=BINS)).pvalue
    if evenness < 1e-6:
        raise NotTheSame(
            f"{name}: draws are not uniform over {stored:,} transitions (p = {evenness:.1e})"
        )
