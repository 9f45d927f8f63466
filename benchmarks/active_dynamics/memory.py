"""the proposal's items about memory -> rows: bytes of calls, and of all transitions of a run"""

import tracemalloc
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.harness import Measured, NotComparable, Row
from benchmarks.reference import active_dynamics_seed as seed
from benchmarks.reference.active_dynamics import RecentRollout, Transition, detached
from benchmarks.reference.active_dynamics_seed import SeedRollout
from benchmarks.torch_rows import Work, check_same, measure_growth
from quatrain.replay import windows
from quatrain.replay.windows import Entry, WindowRing

LENGTH, STORED = 20, 64
CHANNELS, ACTION, D = 50, 2, 2
TIMES, P_MASK = 20, 0.1
CALLS = 5
TRANSITIONS, FEW = 10_000, 40


def rows() -> list[Row]:
    """Measures allocated bytes of calls, and the growth of processes that store transitions."""
    before, after = (stored_by(kind, 2 * STORED)[0] for kind in (RecentRollout, SeedRollout))
    ring = ring_of(2 * STORED, STORED)
    refuse_another_window(before, after, ring)
    drawn, generator = seed.Mask(TIMES), Generator().manual_seed(0)
    transition = transition_of(generator)
    items = {
        f"rollout copy, the last {LENGTH} transitions: bytes; ours: of Python's views": (
            "dynamics-clone",
            (before.copy, after.copy, lambda: windows.last(ring, LENGTH)),
        ),
        "transition written: bytes; seed's way: nobody takes from the pool": (
            "dynamics-pool",
            [partial(add, transition) for add in (before.add, after.add, partial(write, ring))],
        ),
        "mask: bytes; seed's way: breaks two losses with one backward": (
            "dynamics-mask",
            (
                lambda: seed.mask_before(TIMES, P_MASK),
                lambda: drawn(P_MASK),
                lambda: torch.rand(TIMES, 1, generator=generator) >= P_MASK,
            ),
        ),
    }
    result = []
    for name, (claim, works) in items.items():
        plain, proposed, ours = map(allocated, works)
        result.append(Row(name, "KiB", ours, plain, proposed, claims=(claim,)))
    return [*result, run_row()]


def run_row() -> Row:
    """Measures the memory of all transitions of a run."""
    works = {
        "ours": partial(ring_of, TRANSITIONS, TRANSITIONS),
        "before": partial(stored_by, RecentRollout, TRANSITIONS),
        "seed_way": partial(stored_by, SeedRollout, TRANSITIONS),
    }
    grown = measure_growth(warm_up, works)
    each = {side: Measured(growth.values / TRANSITIONS) for side, growth in grown.items()}
    name = f"memory of {TRANSITIONS} transitions, {CHANNELS} channels, each"
    name = f"{name}; ours: of {stored_bytes()} bytes in tensors"
    return Row(name, "KiB", **each, claims=("dynamics-memory",))


# Bytes of a call.


def allocated(work: Work) -> Measured:
    """Measures the least of several calls, which differ by what Python keeps cached."""
    work()
    each = [of_tensors(work) + of_python(work) for _ in range(CALLS)]
    return Measured(np.array([float(min(each))]))


def of_tensors(work: Work) -> int:
    """Sums all storages that operations allocate, freed ones included."""
    with _Allocations() as result:
        work()
    return result.total


def of_python(work: Work) -> int:
    """Measures the peak above the memory in use before the call."""
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    retained = work()
    result = tracemalloc.get_traced_memory()[1] - before
    del retained
    tracemalloc.stop()
    return result


class _Allocations(TorchDispatchMode):
    """Adds up storages that are not those of an operation's inputs."""

    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        inputs = {storage.data_ptr() for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage.data_ptr() not in inputs:
                self.total += storage.nbytes()
        return result


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


# Transitions.


def transition_of(generator: Generator) -> dict[str, Tensor]:
    """Returns a transition with the original's columns."""
    sizes = {"obs": CHANNELS, "next_obs": CHANNELS, "action": ACTION}
    sizes |= {"model_state": D, "next_model_state": D}
    created = {name: torch.randn(size, generator=generator) for name, size in sizes.items()}
    return created | {"reward": torch.zeros(())}


def write(ring: WindowRing, transition: dict[str, Tensor]) -> None:
    columns = (transition[name][None] for name in ("next_obs", "action"))
    windows.write(ring, Entry(*columns, torch.tensor([False])), LENGTH)


def ring_of(transitions: int, size: int) -> WindowRing:
    """Stores transitions in the project's ring."""
    generator, ring = Generator().manual_seed(0), windows.allocate(1, size, CHANNELS, ACTION)
    for _ in range(transitions):
        write(ring, transition_of(generator))
    return ring


def stored_by(
    kind: type[RecentRollout], transitions: int
) -> tuple[RecentRollout, list[Transition]]:
    """Stores a dictionary per transition; copies the latest transitions in each step."""
    generator, latest = Generator().manual_seed(0), kind(LENGTH)
    rollout = []
    for _ in range(transitions):
        transition = transition_of(generator)
        rollout.append({name: detached(value) for name, value in transition.items()})
        latest.add(transition)
        latest.copy()
    return latest, rollout


def stored_bytes() -> int:
    """Returns the bytes of a transition, from the shapes of a ring."""
    ring = windows.allocate(1, 2, CHANNELS, ACTION)
    parts = (*ring[:3], ring.starts.numbers)
    return sum(part.numel() * part.element_size() for part in parts) // 2


def refuse_another_window(before: RecentRollout, after: RecentRollout, ring: WindowRing) -> None:
    """Compares the latest transitions of all containers; the project's must be a view.

    Raises:
        NotComparable: they differ, or it is a copy.
    """
    window = windows.last(ring, LENGTH)
    ours = [window.observations[0], window.actions[0]]
    for rollout in (before, after):
        copied = rollout.copy().data
        check_same("rollout copy", ours, [copied["next_obs"], copied["action"]], 0, 0)
    if of_tensors(lambda: windows.last(ring, LENGTH)):
        raise NotComparable("rollout copy: the project's window is a copy")


def warm_up() -> None:
    """Makes libraries load what they load on demand."""
    ring_of(FEW, FEW)
    for kind in (RecentRollout, SeedRollout):
        stored_by(kind, FEW)
