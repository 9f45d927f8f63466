"""progress of a learner -> a bar on a terminal, plain lines elsewhere."""

import os
import sys
import time
from typing import Self

import numpy as np
from tqdm import tqdm

from pipeline.runtime import console
from quatrain.progress import Progress

# Lines of a whole run if stderr is not a terminal (CI, files).
LINES = 20


class ProgressBar:
    """Shows step, rate, remaining time and two metrics, and measures compilation separately."""

    def __init__(self, name: str, total: int, start: int, headline: tuple[str, ...]) -> None:
        self.name = name
        self.total = total
        self.start = start
        self.headline = headline
        columns = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
        self.is_terminal = columns > 0
        self.values: dict[str, str] = {}
        self.step = start
        self.printed_step = start
        self.first_step = start
        self.started_at = time.monotonic()
        self.first_at = self.started_at

    def __enter__(self) -> Self:
        if self.start:
            console.info(f"{self.name}: continues at step {self.start:,} of {self.total:,}")
        if self.start < self.total:
            console.info(f"{self.name}: preparing, then {self.total - self.start:,} steps")
        self.bar = tqdm(
            total=self.total,
            initial=self.start,
            desc=self.name,
            unit=" steps",
            disable=not self.is_terminal,
            leave=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def show(self, progress: Progress) -> None:
        if self.step == self.start:
            self.first_at = time.monotonic()
            self.first_step = progress.step
        self.bar.update(progress.step - self.step)
        self.step = progress.step
        for name in self.headline:
            if len(progress.metrics[name]):
                self.values[name] = f"{np.mean(progress.metrics[name][-1]):.4g}"
        self.bar.set_postfix(self.values, refresh=False)
        is_due = (self.step - self.printed_step) * LINES >= self.total
        if self.is_terminal or not (is_due or self.step == self.total):
            return
        self.printed_step = self.step
        values = [f"{name} {value}" for name, value in self.values.items()]
        parts = [f"{self.step:,}/{self.total:,}", *self.pace(), *values]
        console.info(f"{self.name}: {'  '.join(parts)}")

    def pace(self) -> list[str]:
        """Returns rate and remaining time in words; nothing before a rate is known."""
        rate = self.rate()
        if not rate:
            return []
        digits = f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"
        return [f"{digits} steps/s", f"{(self.total - self.step) / rate:.0f} s left"]

    def rate(self) -> float:
        """Returns steps per second since the first yield, so without compilation; 0 if unknown."""
        steps = self.step - self.first_step
        seconds = time.monotonic() - self.first_at
        return steps / seconds if steps > 0 and seconds > 0 else 0.0

    def times(self) -> dict[str, float]:
        """Returns the seconds of compilation, the other seconds, and steps per second after it.

        Compilation (with torch: the first calls) is the time to the first yield minus what its
        steps take at the later rate; all of that time if there is no later yield.
        """
        rate = self.rate()
        compilation = self.first_at - self.started_at
        if rate:
            compilation = max(0.0, compilation - (self.first_step - self.start) / rate)
        return {
            "compile_seconds": compilation,
            "run_seconds": time.monotonic() - self.started_at - compilation,
            "steps_per_second": rate,
        }
