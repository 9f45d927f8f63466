"""works named like the columns of a row -> the row; checks and limits of PyTorch's rows"""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.harness import Measured, NotComparable, Row, Without, race, repeat

Work = Callable[[], Any]


def measured_row(
    unit: str,
    rounds: int,
    name: str,
    works: Mapping[str, Work],
    without: str = "",
    units: Mapping[str, float] | None = None,
    alike: Iterable[str] = (),
    **columns: Any,
) -> Row:
    """Measures one row.

    without: what the work of that name lacks. units: what a call counts as, if not 1. alike: works
    that must return the same.
    """
    for first, second in pairwise(alike):
        check_same(f"{name}: {first}, {second}", works[first](), works[second]())
    counts = dict.fromkeys(works, 1.0) | dict(units or {})
    sides = {side: repeat(work, counts[side]) for side, work in works.items()}
    times: dict[str, Any] = race(sides, rounds)
    if without:
        times["without"] = Without(without, times["without"])
    return Row(name, unit, **times, **columns)


def check_same(what: str, ours: Any, other: Any, rtol: float = 1e-3, atol: float = 1e-5) -> None:
    """Raises NotComparable unless tensors, numbers or collections of them are alike."""
    for left, right in zip(tree_leaves(ours), tree_leaves(other), strict=True):
        pair = [torch.as_tensor(side, dtype=torch.float64) for side in (left, right)]
        if not torch.allclose(*pair, rtol, atol):
            raise NotComparable(f"{what}: the sides do not compute the same")


def products(work: Work, rows: int, inner: int, columns: int) -> tuple[Work, float]:
    """Returns one product of matrices of these sizes, and its share of the operations that the
    work's products need: a lower bound of the time.
    """
    with FlopCounterMode(display=False) as counter:
        work()
    left, right = torch.randn(rows, inner), torch.randn(inner, columns)
    return lambda: left @ right, 2.0 * rows * inner * columns / counter.get_total_flops()


def measure_growth(warm_up: Work, works: Mapping[str, Work]) -> dict[str, Measured]:
    """Returns the bytes by which a process of its own grows with each work, after the libraries
    have loaded what they load on demand; all at the same time, as none is timed.
    """
    context = get_context("spawn")
    with ProcessPoolExecutor(len(works), context, max_tasks_per_child=1) as pool:
        grown = {side: pool.submit(growth, warm_up, work) for side, work in works.items()}
        return {side: Measured(np.array([each.result()])) for side, each in grown.items()}


def growth(warm_up: Work, work: Work) -> float:
    torch.set_num_threads(1)
    warm_up()
    begin = peak()
    retained = work()
    result = peak() - begin
    del retained
    return result


def peak() -> float:
    """Returns the most bytes so far; getrusage would begin with those of the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
