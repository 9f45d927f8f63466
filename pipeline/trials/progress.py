"""trials that end -> a line for each: what became of it, how many are left, and for how long."""

import time
from datetime import timedelta

from pipeline.runtime import console


class Progress:
    """Tells of each trial that ends. done: how many have ended before."""

    def __init__(self, total: int, done: int = 0) -> None:
        self._total = total
        self._before = done
        self._done = done
        self._began = time.monotonic()

    def ended(self, label: str, state: str, reason: str = "", best: str = "") -> None:
        self._done += 1
        seconds = (time.monotonic() - self._began) / (self._done - self._before)
        left = timedelta(seconds=round(seconds * max(0, self._total - self._done)))
        event = f"{label}: {state}: {reason}" if reason else f"{label}: {state}"
        parts = "; ".join(filter(None, [event, best, f"about {left} left"]))
        console.info(f"[{self._done}/{self._total}] {parts}")
