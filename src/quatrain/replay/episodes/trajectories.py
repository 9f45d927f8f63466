"""walks -> flat trajectories -> random pairs (state, later state) of one trajectory

A trajectory of T transitions occupies T + 1 consecutive slots s_0..s_T. What sampling needs (how many
transitions are left, which slots start one) is derived when a trajectory is added: sampling is gathers only.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Int, Int8, Int32, PRNGKeyArray

from quatrain.errors import DataError
from quatrain.replay.episodes.lags import AnyArray, draw_lags, lags

NO_ACTION = -1  # at a trajectory's last slot
NOT_A_START = -1


class ReplayError(DataError):
    """Data that cannot be stored or sampled."""


class Episodes(NamedTuple):
    """Whole trajectories, each in consecutive slots: NumPy arrays on the host, or a pytree under jit."""

    state: Int32[AnyArray, "slots"]
    action: Int8[AnyArray, "slots"]  # -1 at a last slot
    terminated: Bool[AnyArray, "slots"]  # both flags describe the step that leaves the slot
    truncated: Bool[AnyArray, "slots"]
    horizon: Int32[AnyArray, "slots"]  # transitions left in this trajectory, 0 at its last slot
    starts: Int32[AnyArray, "transitions"]  # the slots with horizon >= 1


class Trajectory(NamedTuple):
    """One walk of T transitions: the flags are set at its last transition only, or nowhere if it was cut."""

    state: Int[np.ndarray, "states"]  # T + 1
    action: Int[np.ndarray, "transitions"]
    terminated: Bool[np.ndarray, "transitions"]
    truncated: Bool[np.ndarray, "transitions"]


class Batch(NamedTuple):
    state: Int32[AnyArray, "batch"]
    later_state: Int32[AnyArray, "batch"]
    constraint_states: Int32[
        AnyArray, "constraint batch"
    ]  # independent of the pairs and of each other


def from_walks(
    state: Int[AnyArray, "walkers steps"],
    action: Int[AnyArray, "walkers steps"],
    next_state: Int[AnyArray, "walkers steps"],
    terminated: Bool[AnyArray, "walkers steps"],
    truncated: Bool[AnyArray, "walkers steps"],
) -> Episodes:
    """Flattens what a compiled scan collected; a walker's unfinished tail becomes a truncated trajectory.

    `next_state` is the state before any reset: a trajectory's last slot. Both flags at once mean terminated.

    Raises:
        ReplayError: there is no transition, or a walk jumps without a flag.
    """
    state, next_state, terminated = (
        np.asarray(state),
        np.asarray(next_state),
        np.asarray(terminated),
    )
    truncated = np.asarray(truncated) & ~terminated
    truncated[:, -1:] |= ~terminated[:, -1:]
    _refuse_broken(state, next_state, terminated | truncated)

    ends = np.flatnonzero(terminated | truncated)
    last_slots = ends + np.arange(1, len(ends) + 1)  # each trajectory before has one slot more
    slots_of_each = np.diff(last_slots, prepend=-1)
    horizon = np.repeat(last_slots, slots_of_each) - np.arange(last_slots[-1] + 1)
    inner = horizon > 0
    return Episodes(
        state=_spread(state, inner, next_state.ravel()[ends], np.int32),
        action=_spread(np.asarray(action), inner, NO_ACTION, np.int8),
        terminated=_spread(terminated, inner, False, np.bool_),
        truncated=_spread(truncated, inner, False, np.bool_),
        horizon=horizon.astype(np.int32),
        starts=np.flatnonzero(inner).astype(np.int32),
    )


def _spread(
    values: np.ndarray, inner: np.ndarray, at_last: np.ndarray | int, dtype: type
) -> np.ndarray:
    """Per-transition values in the slots that start one, `at_last` in the others."""
    slots: np.ndarray = np.empty(len(inner), dtype)
    slots[inner], slots[~inner] = values.ravel(), at_last
    return slots


def _refuse_broken(state: np.ndarray, next_state: np.ndarray, ended: np.ndarray) -> None:
    if state.size == 0:
        walkers, steps = state.shape
        raise ReplayError(
            f"No transition in {walkers} walks of {steps} steps; collect at least one step."
        )
    jumps = (next_state[:, :-1] != state[:, 1:]) & ~ended[:, :-1]
    if jumps.any():
        walker, step = np.argwhere(jumps)[0]
        raise ReplayError(
            f"Walker {walker} enters state {next_state[walker, step]} at step {step} but goes on from state "
            f"{state[walker, step + 1]}; set terminated or truncated where a walk is cut."
        )


def from_trajectories(trajectories: Sequence[Trajectory]) -> Episodes:
    """Trajectories back to back, in order; without a flag at its end one counts as truncated.

    Raises:
        ReplayError: a trajectory has no transition, columns that do not fit, or a flag in the middle.
    """
    walks = [_blank(0)]
    for trajectory in trajectories:
        state, action, terminated, truncated = _checked(trajectory)
        walk = from_walks(
            state[None, :-1], action[None], state[None, 1:], terminated[None], truncated[None]
        )
        walks.append(walk)
    merged = Episodes(*map(np.concatenate, zip(*walks, strict=True)))
    return merged._replace(starts=np.flatnonzero(merged.horizon).astype(np.int32))


def _checked(trajectory: Trajectory) -> Trajectory:
    columns = Trajectory(*map(np.asarray, trajectory))
    transitions = len(columns.action)
    if transitions == 0:
        raise ReplayError("A trajectory without transitions has no pair to give; leave it out.")
    lengths = tuple(len(column) for column in columns)
    if lengths != (transitions + 1, transitions, transitions, transitions):
        raise ReplayError(
            f"A trajectory of {transitions} actions needs {transitions + 1} states and {transitions} flags "
            f"of each kind, but has {lengths[0]} states, {lengths[2]} terminated and {lengths[3]} truncated."
        )
    early = np.flatnonzero((columns.terminated | columns.truncated)[:-1])
    if len(early):
        flag = "terminated" if columns.terminated[early[0]] else "truncated"
        raise ReplayError(
            f"A trajectory of {transitions} transitions is {flag} at transition {early[0]}, before its last; "
            "split it there in two."
        )
    return columns


class Ring:
    """Trajectories in a fixed number of slots: the newest replace those that they touch, whole.

    A trajectory is never split: one that does not fit before the end starts at slot 0.
    """

    def __init__(self, capacity: int, states: int) -> None:
        self._capacity, self._states = capacity, states
        self._slots = _blank(capacity)  # its `starts` are valid up to `_transitions`, in any order
        self._position = np.full(capacity, NOT_A_START, np.int32)  # starts[position[slot]] == slot
        self._transitions = 0
        self._cursor = 0

    def episodes(self) -> Episodes:
        """A view for sampling, valid until the next `append`."""
        return self._slots._replace(starts=self._slots.starts[: self._transitions])

    def append(self, trajectory: Trajectory) -> None:
        """Adds a trajectory, in place, and drops every old one that its slots touch.

        Raises:
            ReplayError: as `from_trajectories`, or if it exceeds the capacity or leaves the states [0, S).
        """
        new = from_trajectories([trajectory])
        self._refuse(new)
        begin = self._cursor if self._cursor + len(new.state) <= self._capacity else 0
        end = begin + len(new.state)
        # The slots begin where a trajectory does or at none, but the last may lie in the middle of an old one.
        self._drop(begin, end + int(self._slots.horizon[end - 1]))
        self._write(new, slice(begin, end))
        self._cursor = end

    def _refuse(self, new: Episodes) -> None:
        if len(new.state) > self._capacity:
            raise ReplayError(
                f"A trajectory of {len(new.starts)} transitions needs {len(new.state)} slots, the ring has "
                f"{self._capacity}; raise its capacity or cut the trajectory."
            )
        outside = np.flatnonzero((new.state < 0) | (new.state >= self._states))
        if len(outside):
            raise ReplayError(
                f"State {new.state[outside[0]]} at position {outside[0]} of the trajectory is outside "
                f"[0, {self._states}); was it collected on another layout?"
            )

    def _drop(self, begin: int, end: int) -> None:
        """Frees slots; the last starts move into the gaps that this leaves among the starts."""
        starts = self._slots.starts
        gone = self._position[begin:end]
        gone = gone[gone != NOT_A_START]
        kept = self._transitions - len(gone)
        moves = np.ones(len(gone), bool)
        moves[gone[gone >= kept] - kept] = False
        gaps, movers = gone[gone < kept], starts[kept : self._transitions][moves]
        starts[gaps], self._position[movers] = movers, gaps
        self._transitions = kept
        self._position[begin:end] = NOT_A_START
        for column, blank in zip(self._slots[:-1], _blank(end - begin)[:-1], strict=True):
            column[begin:end] = blank

    def _write(self, new: Episodes, where: slice) -> None:
        for column, values in zip(self._slots[:-1], new[:-1], strict=True):
            column[where] = values
        starts = where.start + new.starts
        count = self._transitions + len(starts)
        self._position[starts] = np.arange(self._transitions, count)
        self._slots.starts[self._transitions : count] = starts
        self._transitions = count


def _blank(slots: int) -> Episodes:
    """Slots that hold no trajectory, with room for as many starts."""
    dtypes = (np.int32, np.int8, np.bool_, np.bool_, np.int32, np.int32)
    blank = Episodes(*(np.zeros(slots, dtype) for dtype in dtypes))
    return blank._replace(action=np.full(slots, NO_ACTION, np.int8))


def sample(
    key: PRNGKeyArray,
    episodes: Episodes,
    batch_size: int,
    discounts: tuple[float, ...],
    constraint_batches: int = 1,
) -> Batch:
    """Pairs with uniform starts and truncated geometric lags, and further uniform starts; for use under jit.

    Everything but `key` and `episodes` is static. One `randint` draws all starts, one `uniform` the lags. `vmap` over
    threefry keys draws a whole chunk at once, several times faster on a CPU and with the same bits as one by one.

    Raises:
        ReplayError: the replay is empty.
    """
    transitions = _count_transitions(episodes, batch_size)
    start_key, lag_key = jax.random.split(key)
    picks = jax.random.randint(start_key, ((1 + constraint_batches) * batch_size,), 0, transitions)
    uniforms = jax.random.uniform(lag_key, (batch_size,))

    def take(column: jax.Array, at: jax.Array) -> jax.Array:
        return column.at[at].get(mode="promise_in_bounds")

    slots = take(episodes.starts, picks)
    pair_slots = slots[:batch_size]
    later_slots = pair_slots + lags(uniforms, take(episodes.horizon, pair_slots), discounts)
    states = take(episodes.state, jnp.concatenate([slots, later_slots]))
    return Batch(
        state=states[:batch_size],
        later_state=states[-batch_size:],
        constraint_states=states[batch_size:-batch_size].reshape(-1, batch_size),
    )


def sample_numpy(
    rng: np.random.Generator,
    episodes: Episodes,
    batch_size: int,
    discounts: tuple[float, ...],
    constraint_batches: int = 1,
) -> Batch:
    """`sample` for the host: the same law, other random numbers.

    Raises:
        ReplayError: the replay is empty.
    """
    transitions = _count_transitions(episodes, batch_size)
    picks = rng.random((1 + constraint_batches) * batch_size)
    picks *= transitions
    # floor(u N) is half the price of rng.integers, and as even as 53 bits allow. Every index is valid by its making:
    # mode="clip" leaves out the check, which would copy.
    slots = episodes.starts.take(picks.astype(np.intp), mode="clip")
    pair_slots = slots[:batch_size]
    later_slots = draw_lags(rng, episodes.horizon.take(pair_slots, mode="clip"), discounts)
    later_slots += pair_slots
    states = episodes.state.take(slots, mode="clip")
    later_states = episodes.state.take(later_slots, mode="clip")
    return Batch(states[:batch_size], later_states, states[batch_size:].reshape(-1, batch_size))


def _count_transitions(episodes: Episodes, batch_size: int) -> int:
    transitions = len(episodes.starts)
    if transitions == 0:
        raise ReplayError(
            f"Cannot sample {batch_size} pairs: the replay holds no transition. Collect or append a trajectory."
        )
    return transitions
