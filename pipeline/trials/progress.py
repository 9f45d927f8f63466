"""trials of a search that end -> a line for each: what became of it, the best, the time left."""

import time
from collections.abc import Callable, Sequence

from pipeline.runtime import console
from pipeline.trials.comparison import Row, rank
from pipeline.trials.space import Space


class Progress:
    """Tells how a search gets on. rows: what is known of its trials."""

    def __init__(self, space: Space, rows: Callable[[], Sequence[Row]]) -> None:
        self._space = space
        self._rows = rows
        self._total = space.sweep.trials + 1
        self._began = time.monotonic()
        self._before = self._count()
        if self._before:
            before = f"{self._before} of {self._total} trials have ended before"
            console.info(f"{space.name} search: continues; {before}")

    def ended(self, row: Row) -> None:
        at = f" at step {row.last.step:,}" if row.state == "stopped" and row.last else ""
        score = "" if row.score is None else f", {row.score:.5g}"
        reason = f": {row.reason}" if row.reason else ""
        self._tell(f"trial {row.number} {row.state}{at}{score}{reason}")

    def _tell(self, event: str) -> None:
        done = self._count()
        best = rank(self._rows(), self._space.is_higher_better)
        so_far = (
            f"best {best[0].score:.5g} (trial {best[0].number})" if best else "none has a score"
        )
        seconds = (time.monotonic() - self._began) / max(1, done - self._before)
        left = f"about {duration(seconds * (self._total - done))} left"
        console.info(f"{self._space.name} search: [{done}/{self._total}] {event}; {so_far}, {left}")

    def _count(self) -> int:
        return sum(row.state != "running" for row in self._rows())


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
