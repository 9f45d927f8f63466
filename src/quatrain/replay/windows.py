"""transitions, one per step and env -> rings of the newest -> windows of one env, as views or drawn
uniformly.

All environments step together. Transition i is written twice, at i % W and W further on, so that
any `length` <= W consecutive transitions are contiguous. A window must not cross the end of an
episode: a valid start is recorded as soon as its window is complete, and dropped when its first
transition is overwritten.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Generator, Tensor


class WindowStarts(NamedTuple):
    """Holds the numbers of transitions that windows may start with, for each env those of rank
    first <= rank < end.

    The number of a rank is stored at rank % W; at most W are valid. age: transitions of the running
    episode.
    """

    numbers: Int64[Tensor, "env w"]
    first: Int64[Tensor, " env"]
    end: Int64[Tensor, " env"]
    age: Int64[Tensor, " env"]


class WindowRing(NamedTuple):
    """Holds the newest W transitions. `written` counts all ever written, on the CPU: reading it is
    free.
    """

    observations: Float32[Tensor, "env two_w obs"]
    actions: Float32[Tensor, "env two_w action"]
    truncated: Bool[Tensor, "env two_w"]
    starts: WindowStarts
    written: Int64[Tensor, ""]

    @property
    def size(self) -> int:
        """Returns W."""
        return self.starts.numbers.shape[1]

    @property
    def stored(self) -> int:
        """Returns the number of transitions per env that are stored."""
        return min(int(self.written), self.size)


class Windows(NamedTuple):
    """Holds several windows of one env, time first."""

    observations: Float32[Tensor, "time batch obs"]
    actions: Float32[Tensor, "time batch action"]
    starts: Int64[Tensor, " batch"]


class View(NamedTuple):
    """Holds consecutive transitions; valid until the next write to the ring."""

    observations: Float32[Tensor, "*env time obs"]
    actions: Float32[Tensor, "*env time action"]
    truncated: Bool[Tensor, "*env time"]


def allocate(envs: int, size: int, obs: int, action: int) -> WindowRing:
    """Returns an empty ring of `size` transitions per env."""
    return WindowRing(
        observations=torch.zeros(envs, 2 * size, obs),
        actions=torch.zeros(envs, 2 * size, action),
        truncated=torch.zeros(envs, 2 * size, dtype=torch.bool),
        starts=WindowStarts(
            torch.zeros(envs, size, dtype=torch.int64), *torch.zeros(3, envs, dtype=torch.int64)
        ),
        written=torch.zeros((), dtype=torch.int64, device="cpu"),
    )


def write(
    ring: WindowRing,
    observation: Float32[Tensor, "env obs"],
    action: Float32[Tensor, "env action"],
    truncated: Bool[Tensor, " env"],
    length: int,
) -> None:
    """Replaces the oldest transition and records valid starts of windows of this length. Modifies
    the ring.

    observation: y_{i+1}, which the action a_i led to. truncated: whether the episode ended there.
    """
    number = int(ring.written)
    slot = number % ring.size
    for storage, value in zip(ring[:3], (observation, action, truncated), strict=True):
        storage.select(1, slot).copy_(value)
        storage.select(1, slot + ring.size).copy_(value)
    _record_start(ring.starts, number, truncated, length)
    ring.written.add_(1)


def _record_start(
    starts: WindowStarts, number: int, truncated: Bool[Tensor, " env"], length: int
) -> None:
    numbers, first, end, age = starts
    size = numbers.shape[1]
    slot = end
    # Once the ring wraps around, ranks need a modulo, and the oldest start may be overwritten.
    if number >= size:
        first.add_(
            (numbers.gather(1, (first % size)[:, None])[:, 0] == number - size) & (first < end)
        )
        slot = end % size
    # Written behind the last rank, where it is only visible if `end` moves on.
    numbers.scatter_(1, slot[:, None], number - length + 1)
    end.add_(age.add_(1) >= length)
    age.masked_fill_(truncated, 0)


def window_counts(ring: WindowRing) -> Int64[Tensor, " env"]:
    return ring.starts.end - ring.starts.first


def sample(
    ring: WindowRing, env: int, batch_size: int, length: int, generator: Generator
) -> Windows:
    """Draws windows of an env, uniformly with replacement over its valid starts; at least one must
    exist.
    """
    device = ring.actions.device
    uniform = torch.rand(batch_size, dtype=torch.float64, generator=generator, device=device)
    first = ring.starts.first[env]
    numbers = ring.starts.numbers[env].index_select(
        0, (first + (uniform * (ring.starts.end[env] - first)).long()) % ring.size
    )
    index = (numbers % ring.size + torch.arange(length, device=device)[:, None]).flatten()
    observations, actions = (column[env].index_select(0, index) for column in ring[:2])
    shape = (length, batch_size)
    return Windows(observations.unflatten(0, shape), actions.unflatten(0, shape), numbers)


def window(ring: WindowRing, env: int, start: int, length: int) -> View:
    """Returns the transitions of an env from number `start` on, without copying.

    Raises:
        ValueError: not all of them are in the ring.
    """
    written = int(ring.written)
    oldest = written - ring.stored
    if not oldest <= start <= written - length:
        raise ValueError(
            f"Transitions {start} to {start + length - 1} are not in the ring, "
            f"which holds {oldest} to {written - 1}; ask for fewer or allocate a larger ring."
        )
    slot = start % ring.size
    return View(*(storage[env, slot : slot + length] for storage in ring[:3]))
