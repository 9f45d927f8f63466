"""colonies' arrays, actions -> those one step later: on a CPU, where NumPy calls an operation in a third of the time

What is computed is `dynamics.advance`'s, bit for bit; sines, sums and the sort are torch's, whose rounding and order
of equal keys are its own.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Complex64, Float32, Int64
from torch import Tensor

FLOAT = np.float32


class Before(NamedTuple):
    """What a step starts from; fields are those of `Colonies`, cropped to the slots that are in use."""

    pos: Float32[np.ndarray, "colony cell 2"]
    parent: Int64[np.ndarray, "colony cell"]
    pid: Int64[np.ndarray, "colony cell"]
    age: Float32[np.ndarray, "colony cell"]
    n: Int64[np.ndarray, " colony"]
    left: Int64[np.ndarray, " colony"]
    next_pid: Int64[np.ndarray, " colony"]
    centroid: Float32[np.ndarray, "colony 2"]
    furthest: Float32[np.ndarray, " colony"]


class After(NamedTuple):
    """What comes of it: fields of `Colonies`, and of `Transition`."""

    pos: Float32[Tensor, "colony slot 2"]
    parent: Int64[Tensor, "colony slot"]
    pid: Int64[Tensor, "colony slot"]
    age: Float32[Tensor, "colony slot"]
    new: Bool[Tensor, "colony slot"]
    n: Int64[Tensor, " colony"]
    left: Int64[Tensor, " colony"]
    next_pid: Int64[Tensor, " colony"]
    centroid: Float32[Tensor, "colony 2"]
    furthest: Float32[Tensor, " colony"]
    deleted: Bool[Tensor, "colony cell"]
    survives: Bool[Tensor, "colony cell"]
    child: Float32[Tensor, "colony cell 2"]
    ancestor: Int64[Tensor, "colony cell"]


class Asked(NamedTuple):
    """Of each colony: how many cells to delete, and where every cell's child comes to lie."""

    count: Int64[np.ndarray, " colony"]
    child: Complex64[np.ndarray, "colony cell"]


def advanced(before: Before, asked: Asked, slots: int) -> After:
    """Delete the leftmost cells, place the children of all others, adopt orphans, close ranks."""
    here, child = np.ascontiguousarray(before.pos).view(np.complex64)[..., 0], asked.child
    deleted = leftmost(here.real, before.n, asked.count)
    survives = (np.arange(here.shape[1]) < before.n[:, None]) & ~deleted
    ancestor = surviving_ancestors(before.parent, deleted)
    rank = survives.cumsum(1) - 1
    survivors = rank[:, -1] + 1
    cells = compacted(before, survives, rank, np.concatenate([here.ravel(), child.ravel()]), ancestor, slots)
    grown = np.where(survives, here + child, np.complex64(0))
    total = torch.from_numpy(grown.view(FLOAT).reshape(*here.shape, 2)).sum(1).numpy()
    n = 2 * survivors
    centroid = np.where(n[:, None] > 0, total / np.maximum(n, 1).astype(FLOAT)[:, None], before.centroid)
    rightmost = np.where(survives, np.maximum(here.real, child.real), FLOAT(0)).max(1)
    others = (
        n,
        np.where(centroid[:, 0] < before.centroid[:, 0], before.left + 1, 0),
        before.next_pid + survivors,
        centroid,
        np.maximum(before.furthest, rightmost),
        *(deleted, survives, child.view(FLOAT).reshape(*here.shape, 2), ancestor),
    )
    return After(*map(torch.from_numpy, (*cells, *others)))


def leftmost(x: np.ndarray, n: np.ndarray, count: np.ndarray) -> Bool[np.ndarray, "colony cell"]:
    """The `count` leftmost of a colony's cells, of equal ones those in lower slots."""
    colonies, width = x.shape
    place = np.arange(width)
    keys = np.where(place < n[:, None], x, FLOAT(np.inf))
    order = torch.from_numpy(keys).sort(dim=1, stable=True).indices.numpy()
    order += width * np.arange(colonies)[:, None]
    found = np.zeros(colonies * width, bool)
    found[order[place < count[:, None]]] = True
    return found.reshape(colonies, width)


def surviving_ancestors(parent: np.ndarray, deleted: np.ndarray) -> Int64[np.ndarray, "colony cell"]:
    """Pointer jumping over all colonies at once, whose cells are numbered through; -1 is above all roots."""
    colonies, width = parent.shape
    first = width * np.arange(colonies)[:, None]
    above = np.where(parent >= 0, parent + first, -1).ravel()
    onward = np.append(np.where(deleted.ravel(), above, np.arange(colonies * width)), -1)
    while True:
        farther = onward.take(onward)
        if np.array_equal(farther, onward):
            break
        onward = farther
    found = onward.take(above).reshape(colonies, width)
    return np.where(found >= 0, found - first, -1)


def compacted(
    before: Before, survives: np.ndarray, rank: np.ndarray, both: np.ndarray, ancestor: np.ndarray, slots: int
) -> tuple[np.ndarray, ...]:
    """Survivors in their order, then their children in theirs, in the slots that there are: pos, parent, pid, age, new.

    both: where cells are, then where their children are. Cells and children of all colonies, and at the end nothing,
    stand in one row; `source` says which of them comes into a slot.
    """
    colonies, width = survives.shape
    cells, room = colonies * width, max(slots, 2 * width)
    here = np.flatnonzero(survives)
    at = rank.take(here) + room * (here // width)
    source = np.full(colonies * room, 2 * cells)
    source[at] = here
    source[at + (rank[:, -1] + 1).take(here // width)] = here + cells
    source = source.reshape(colonies, room)[:, :slots]
    heir = rank.take(np.maximum(ancestor, 0) + width * np.arange(colonies)[:, None])
    heir = np.where(ancestor >= 0, heir, -1)
    next_pid = before.next_pid[:, None]
    pid = _row(before.pid, rank + next_pid, -1).take(source)
    return (
        np.append(both, np.complex64(0)).take(source).view(FLOAT).reshape(colonies, slots, 2),
        _row(heir, rank, -1).take(source),
        pid,
        _row(before.age + FLOAT(1), np.zeros_like(rank, FLOAT), FLOAT(0)).take(source),
        pid >= next_pid,
    )


def _row(cells: np.ndarray, children: np.ndarray, nothing: float) -> np.ndarray:
    return np.concatenate([cells.ravel(), children.ravel(), np.array([nothing], cells.dtype)])
