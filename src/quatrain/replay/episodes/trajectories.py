"""walks -> flat trajectories -> random pairs (state, later state) of one trajectory.

A trajectory of T transitions occupies T + 1 consecutive slots s_0..s_T: a next state is the state
of the next slot. The number of transitions left in each slot, and the slots that start one, are
computed when data are added: sampling only gathers. States and horizons have the smallest integer
type that holds them: 20 million transitions in 1000-step walks of 1000 states take 180 MB, half of
it starts.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int32, Integer, PRNGKeyArray

from quatrain.replay.episodes.lags import AnyArray, lags


class Episodes(NamedTuple):
    """Holds whole trajectories in consecutive slots: NumPy arrays, or a pytree under jit."""

    state: Integer[AnyArray, "slots"]
    terminated: Bool[AnyArray, "slots"]  # by the step that leaves the slot
    horizon: Integer[AnyArray, "slots"]  # transitions left in this trajectory, 0 at its last slot
    starts: Int32[AnyArray, "transitions"]  # the slots with horizon >= 1


class Walks(NamedTuple):
    """Holds the transitions of parallel environments, as a compiled scan collects them.

    `next_state` is the state before any reset: a trajectory's last slot.
    """

    state: Integer[AnyArray, "env steps"]
    next_state: Integer[AnyArray, "env steps"]
    terminated: Bool[AnyArray, "env steps"]
    truncated: Bool[AnyArray, "env steps"]


class Batch(NamedTuple):
    """Holds sampled pairs, and batches of states independent of the pairs and of each other."""

    state: Int32[AnyArray, "batch"]
    later_state: Int32[AnyArray, "batch"]
    constraint_states: Int32[AnyArray, "constraint batch"]


def smallest_type(largest: int) -> np.dtype[Any]:
    """Returns the smallest unsigned integer type that holds 0..largest."""
    return np.dtype(np.min_scalar_type(largest))


def from_walks(walks: Walks) -> Episodes:
    """Flattens walks of at least a step; the unfinished end of one is a trajectory, too.

    States keep their type, horizons get the smallest.
    """
    state, next_state, terminated, truncated = map(np.asarray, walks)
    ended = terminated | truncated
    ended[:, -1:] = True
    ends = np.flatnonzero(ended)
    last_slots = ends + np.arange(1, len(ends) + 1)  # each earlier trajectory has one more slot
    lengths = np.diff(last_slots, prepend=-1)
    is_start = np.ones(last_slots[-1] + 1, bool)
    is_start[last_slots] = False

    def to_slots(values: np.ndarray, at_last: np.ndarray | int, dtype: Any) -> np.ndarray:
        slots: np.ndarray = np.empty(len(is_start), dtype)
        slots[is_start] = values.ravel()
        slots[last_slots] = at_last
        return slots

    return Episodes(
        state=to_slots(state, next_state.ravel()[ends], state.dtype),
        terminated=to_slots(terminated, False, np.bool_),
        horizon=_horizons(lengths),
        starts=np.flatnonzero(is_start).astype(np.int32),
    )


def _horizons(lengths: Int[np.ndarray, " trajectories"]) -> Integer[np.ndarray, " slots"]:
    """Counts down to 0 in each trajectory: lengths 3 and 2 give 2 1 0 1 0."""
    longest = int(lengths.max())
    down = np.arange(longest - 1, -1, -1, dtype=smallest_type(longest - 1))
    if (lengths == longest).all():
        return np.tile(down, len(lengths))
    ends = np.cumsum(lengths)
    return (np.repeat(ends, lengths) - np.arange(1, ends[-1] + 1)).astype(down.dtype)


def empty_episodes() -> Episodes:
    dtypes = (np.uint8, np.bool_, np.uint8, np.int32)
    return Episodes(*(np.zeros(0, dtype) for dtype in dtypes))


def sample(
    key: PRNGKeyArray,
    episodes: Episodes,
    batch_size: int,
    discounts: tuple[float, ...],
    constraint_batches: int = 1,
) -> Batch:
    """Samples pairs with uniform starts and truncated geometric lags, and more uniform starts.

    For use under jit: everything but `key` and `episodes` is static. One `randint` draws all
    starts, one `uniform` the lags. `vmap` over threefry keys draws the batches of many steps at
    once, several times faster on a CPU and with the same bits.
    """
    start_key, lag_key = jax.random.split(key)
    count = (1 + constraint_batches) * batch_size
    indices = jax.random.randint(start_key, (count,), 0, len(episodes.starts))
    slots = _gather(episodes.starts, indices)
    pair_slots = slots[:batch_size]
    horizons = _gather(episodes.horizon, pair_slots)
    later_slots = pair_slots + lags(jax.random.uniform(lag_key, (batch_size,)), horizons, discounts)
    states = _gather(episodes.state, jnp.concatenate([slots, later_slots])).astype(jnp.int32)
    return Batch(
        state=states[:batch_size],
        later_state=states[-batch_size:],
        constraint_states=states[batch_size:-batch_size].reshape(-1, batch_size),
    )


def _gather(column: jax.Array, indices: jax.Array) -> jax.Array:
    return column.at[indices].get(mode="promise_in_bounds")
