"""other libraries' replays of the same transitions -> rows: draws of a batch on the host

Each is used as its own documentation shows, with its defaults, for the same five columns. A library
is imported where it is used: what all share is tested without them.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.rows import OURS, Row
from benchmarks.timing import NotComparable, Work, check_frequencies, race
from quatrain.replay.transitions import HostRing

SEED, BATCH, ACTIONS = 0, 256, 4
SIZES = {2: 100_000, 1000: 20_000}
"""Floats of an observation -> transitions stored."""
BINS, CHECKED = 250, 50_000
"""Into which drawn transitions are counted; so many are drawn before anything is timed."""
NOTE = "each gives its own arrays: PyTorch's, JAX's (flashbax, one jitted call), or NumPy's"


class Transition(NamedTuple):
    """Holds one transition, or many with a leading axis; `reward` is its number."""

    obs: Any
    action: Any
    reward: Any
    next_obs: Any
    done: Any


class Replay(NamedTuple):
    """Holds the draw of a full replay; `to_columns` converts what is drawn into our columns."""

    draw: Callable[[], Any]
    to_columns: Callable[[Any], Transition]


def rows(rounds: int) -> list[Row]:
    """Measures small and large transitions."""
    return [draw_row(rounds, floats, stored) for floats, stored in SIZES.items()]


def draw_row(rounds: int, floats: int, stored: int) -> Row:
    """Measures all replays.

    Raises:
        NotComparable: one draws others, or not uniformly.
    """
    data = numbered(stored, floats)
    works: dict[str, Work] = {}
    for name, make in LIBRARIES.items():
        replay = make(data)
        drawn = [replay.to_columns(replay.draw()) for _ in range(-(-CHECKED // BATCH))]
        check_draws(name, Transition(*map(np.concatenate, zip(*drawn, strict=True))), data)
        works[name] = replay.draw
    return Row(f"draw of {BATCH}, {floats} floats", "us/call", race(works, rounds), note=NOTE)


def numbered(stored: int, floats: int) -> Transition:
    """Returns random transitions: untouched zeros would be one cached page."""
    rng, numbers = np.random.default_rng(SEED), np.arange(stored)
    obs, next_obs = (rng.random((stored, floats), np.float32) for _ in range(2))
    actions = (numbers % ACTIONS).astype(np.int32)
    return Transition(obs, actions, numbers.astype(np.float32), next_obs, numbers % 10 == 0)


def check_draws(name: str, drawn: Transition, data: Transition) -> None:
    """Raises NotComparable unless all transitions, and no others, are drawn equally often."""
    numbers, stored = drawn.reward.reshape(-1).astype(np.int64), len(data.reward)
    counts, expected = (
        np.bincount(np.minimum(each, stored) * BINS // stored, minlength=BINS + 1)
        for each in (numbers, np.arange(stored))
    )
    check_frequencies(name, counts, expected * len(numbers) / stored)
    for column, stored_column in zip(drawn, data, strict=True):
        each = stored_column[numbers]
        if not np.array_equal(column.reshape(each.shape), each):
            raise NotComparable(f"{name}: draws transitions in parts of several")


def ours(data: Transition) -> Replay:
    rng, ring = np.random.default_rng(SEED), HostRing(len(data.reward), one_of(data))
    ring.extend(data)
    return Replay(lambda: ring.sample(rng, BATCH), lambda drawn: drawn)


def cpprb(data: Transition) -> Replay:
    from cpprb import ReplayBuffer

    obs = {"shape": data.obs.shape[1:]}
    columns = (obs, {"dtype": np.int32}, {}, obs, {"dtype": np.bool_})
    buffer = ReplayBuffer(len(data.reward), dict(zip(Transition._fields, columns, strict=True)))
    buffer.add(**data._asdict())
    return Replay(lambda: buffer.sample(BATCH), by_name)


def stable_baselines3(data: Transition) -> Replay:
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer

    def columns(item: Any) -> Transition:
        names = ("observations", "actions", "rewards", "next_observations", "dones")
        return Transition(*(np.asarray(getattr(item, name)) for name in names))

    spaces = (Box(0, 1, data.obs.shape[1:]), Discrete(ACTIONS))
    buffer = ReplayBuffer(len(data.reward), *spaces, "cpu")
    for column, slots in zip(data, columns(buffer), strict=True):
        slots[:] = column.reshape(slots.shape)
    buffer.full = True
    return Replay(lambda: buffer.sample(BATCH), columns)


def torchrl(data: Transition) -> Replay:
    import torch
    from tensordict import TensorDict
    from torchrl.data import LazyTensorStorage, ReplayBuffer

    tensors = {name: torch.from_numpy(column) for name, column in data._asdict().items()}
    stored = len(data.reward)
    buffer = ReplayBuffer(storage=LazyTensorStorage(stored), batch_size=BATCH)
    buffer.extend(TensorDict(tensors, batch_size=[stored]))
    return Replay(buffer.sample, by_name)


def flashbax(data: Transition) -> Replay:
    import jax
    from flashbax import make_item_buffer

    buffer = make_item_buffer(len(data.reward), 1, BATCH, add_batches=True)
    empty = buffer.init(one_of(data)._asdict())
    state = jax.jit(buffer.add)(empty, jax.tree.map(jax.numpy.asarray, data._asdict()))
    keys = [jax.random.key(SEED)]

    @jax.jit
    def sample(state: Any, key: jax.Array) -> tuple[Any, jax.Array]:
        now, later = jax.random.split(key)
        return buffer.sample(state, now).experience, later

    def draw() -> Any:
        drawn, key = jax.block_until_ready(sample(state, keys.pop()))
        keys.append(key)
        return drawn

    return Replay(draw, by_name)


def one_of(data: Transition) -> Transition:
    return Transition(*(column[0] for column in data))


def by_name(drawn: Mapping[str, Any]) -> Transition:
    return Transition(*(np.asarray(drawn[name]) for name in Transition._fields))


LIBRARIES: dict[str, Callable[[Transition], Replay]] = {
    OURS: ours,
    "cpprb": cpprb,
    "flashbax": flashbax,
    "stable-baselines3": stable_baselines3,
    "torchrl": torchrl,
}
