"""short work -> contestants that run long enough to be timed"""

import time
from collections.abc import Callable

from benchmarks.harness import Contestant

TURN = 0.006
"""Seconds of a turn, or longer where one call takes longer."""
MOST = 20_000
"""Calls in a turn."""


def repeat(work: Callable[[], object], units: float = 1.0) -> Contestant:
    """Repeats the work until a timing is long enough; `units` is what a row counts in one
    repetition.
    """
    work()
    begin = time.perf_counter()
    work()
    calls = max(1, min(MOST, round(TURN / max(time.perf_counter() - begin, 1e-9))))

    def run() -> None:
        for _ in range(calls):
            work()

    return Contestant(run, calls * units)
