"""transitions of many rows, one at a time -> rings of the newest -> windows of one row, as views or drawn uniformly

The rows move in lock step. Transition i is written twice, at i % W and W further on, so that any `length` <= W
transitions in a row stand side by side. A window must not reach over the end of an episode: where one may start is
noted as soon as the window is complete, and forgotten when its first transition is overwritten.
"""

from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float32, Int64
from torch import Generator, Tensor

Tensors = TypeVar("Tensors")


class Entry(NamedTuple):
    """Transition i of all rows: action a_i, the observation y_{i+1} it led to, and whether the episode ended there."""

    observation: Float32[Tensor, "row obs"]
    action: Float32[Tensor, "row action"]
    truncated: Bool[Tensor, " row"]


class WindowStarts(NamedTuple):
    """Numbers of the transitions that windows of `length` may start with: of a row those of rank first <= rank < end.

    The one of a rank stands at rank % W; more than W are never valid. age: transitions of the running episode.
    """

    numbers: Int64[Tensor, "row w"]
    first: Int64[Tensor, " row"]
    end: Int64[Tensor, " row"]
    age: Int64[Tensor, " row"]


class WindowRing(NamedTuple):
    """The newest W transitions. `written`, of all ever written, is on the CPU wherever the ring is: to ask is free."""

    observations: Float32[Tensor, "row two_w obs"]
    actions: Float32[Tensor, "row two_w action"]
    truncated: Bool[Tensor, "row two_w"]
    starts: WindowStarts
    written: Int64[Tensor, ""]

    @property
    def size(self) -> int:
        """W."""
        return self.starts.numbers.shape[1]

    @property
    def stored(self) -> int:
        """Transitions of a row that are still there."""
        return min(int(self.written), self.size)


class Windows(NamedTuple):
    """Transitions of one row in their order, time first; several windows side by side."""

    observations: Float32[Tensor, "time batch obs"]
    actions: Float32[Tensor, "time batch action"]
    starts: Int64[Tensor, " batch"]


class View(NamedTuple):
    """Transitions in their order, valid until the ring is written again."""

    observations: Float32[Tensor, "*row time obs"]
    actions: Float32[Tensor, "*row time action"]
    truncated: Bool[Tensor, "*row time"]


def allocate(rows: int, size: int, obs: int, action: int) -> WindowRing:
    """A ring of `size` transitions that nothing was written to."""
    starts = WindowStarts(
        torch.zeros(rows, size, dtype=torch.int64), *torch.zeros(3, rows, dtype=torch.int64)
    )
    return WindowRing(
        observations=torch.zeros(rows, 2 * size, obs),
        actions=torch.zeros(rows, 2 * size, action),
        truncated=torch.zeros(rows, 2 * size, dtype=torch.bool),
        starts=starts,
        written=torch.zeros((), dtype=torch.int64, device="cpu"),
    )


def write(ring: WindowRing, entry: Entry, length: int) -> None:
    """Puts a transition in place of the oldest, and notes where windows of this length may start. Changes the ring."""
    number, size = int(ring.written), ring.size
    for storage, value in zip(ring[:3], entry, strict=True):
        for place in (number % size, number % size + size):
            storage.select(1, place).copy_(value)
    _note(ring.starts, number, entry.truncated, length)
    ring.written.add_(1)


def _note(starts: WindowStarts, number: int, truncated: Bool[Tensor, " row"], length: int) -> None:
    numbers, first, end, age = starts
    size, place = numbers.shape[1], end
    if (
        number >= size
    ):  # the ring has come round: ranks do not stand at their own places, and a start may be overwritten
        oldest = numbers.gather(1, (first % size)[:, None])[:, 0]
        first.add_((oldest == number - size) & (first < end))
        place = end % size
    numbers.scatter_(
        1, place[:, None], number - length + 1
    )  # behind the last one, where it counts only if it is valid
    end.add_(age.add_(1) >= length)
    age.masked_fill_(truncated, 0)


def window_counts(ring: WindowRing) -> Int64[Tensor, " row"]:
    """How many windows each row has."""
    return ring.starts.end - ring.starts.first


def sample(
    ring: WindowRing, row: int, batch_size: int, length: int, generator: Generator
) -> Windows:
    """Windows of a row, uniform with replacement over its valid starts; there must be at least one."""
    starts, size, device = ring.starts, ring.size, ring.actions.device
    uniform = torch.rand(batch_size, dtype=torch.float64, generator=generator, device=device)
    first, end = starts.first[row], starts.end[row]
    rank = first + (uniform * (end - first)).long()
    numbers = starts.numbers[row].index_select(0, rank % size)
    index = (numbers % size + torch.arange(length, device=device)[:, None]).flatten()
    observations, actions = (
        storage[row].index_select(0, index).unflatten(0, (length, batch_size))
        for storage in ring[:2]
    )
    return Windows(observations, actions, numbers)


def window(ring: WindowRing, row: int, start: int, length: int) -> View:
    """Transitions of a row from number `start` on; nothing is copied.

    Raises:
        ValueError: not all of them are in the ring.
    """
    written, oldest = int(ring.written), int(ring.written) - ring.stored
    if not oldest <= start <= written - length:
        raise ValueError(
            f"Transitions {start} to {start + length - 1} are not in the ring, which holds {oldest} to {written - 1}; "
            "ask for fewer or allocate a larger ring."
        )
    place = start % ring.size
    return View(*(storage[row, place : place + length] for storage in ring[:3]))


def last(ring: WindowRing, length: int) -> View:
    """The newest transitions of all rows; nothing is copied.

    Raises:
        ValueError: there are not so many in the ring.
    """
    if length > ring.stored:
        raise ValueError(
            f"The last {length} transitions are not in the ring: it holds {ring.stored}; ask for fewer."
        )
    place = (int(ring.written) - length) % ring.size
    return View(*(storage[:, place : place + length] for storage in ring[:3]))


def to_device(tensors: Tensors, device: torch.device) -> Tensors:
    """On a GPU, by way of pinned memory, which alone lets the copies run side by side; elsewhere the same tensors."""
    if device.type != "cuda":
        return tensors
    return _each(tensors, lambda tensor: tensor.pin_memory().to(device, non_blocking=True))


def _each(tree: Any, change: Any) -> Any:
    return (
        change(tree)
        if isinstance(tree, Tensor)
        else type(tree)(*(_each(child, change) for child in tree))
    )
