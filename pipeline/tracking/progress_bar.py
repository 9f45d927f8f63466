"""progress of a learner -> a bar on a terminal, plain lines elsewhere."""

import os
import sys
import time
from typing import Self

import numpy as np
from tqdm import tqdm

from pipeline.runtime import console
from quatrain.progress import Progress

LINES = 20
"""Plain lines of a whole run where stderr is no terminal (CI, files)."""


class Bar:
    """Step, rate, remaining time and two headline metrics; announces the first compilation and keeps its time apart."""

    def __init__(self, name: str, total: int, start: int, headline: tuple[str, ...]) -> None:
        self.name, self.total, self.start, self.headline = name, total, start, headline
        self.terminal = (
            sys.stderr.isatty() and os.get_terminal_size(sys.stderr.fileno()).columns > 0
        )
        self.shown: dict[str, str] = {}
        self.began = self.first = time.monotonic()
        self.first_step = self.step = self.printed = start

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
            disable=not self.terminal,
            leave=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def show(self, progress: Progress) -> None:
        """Move on to a yield."""
        if self.step == self.start:
            self.first, self.first_step = time.monotonic(), progress.step
        self.bar.update(progress.step - self.step)
        self.step = progress.step
        for name in self.headline:
            if len(progress.metrics[name]):
                self.shown[name] = f"{np.mean(progress.metrics[name][-1]):.4g}"
        self.bar.set_postfix(self.shown, refresh=False)
        if (
            not self.terminal and (self.step - self.printed) * LINES >= self.total
        ) or self.step == self.total:
            self._print_line()

    def _print_line(self) -> None:
        self.printed = self.step
        if self.terminal:
            return
        rate = self.rate()
        left = (self.total - self.step) / rate if rate else 0.0
        values = "  ".join(f"{name} {value}" for name, value in self.shown.items())
        console.info(
            f"{self.name}: {self.step:,}/{self.total:,}  {rate:,.0f} steps/s  {left:.0f} s left  {values}"
        )

    def rate(self) -> float:
        """Steps per second since the first yield, so without compilation; 0 while unknown."""
        seconds = time.monotonic() - self.first
        return (
            (self.step - self.first_step) / seconds
            if self.step > self.first_step and seconds > 0
            else 0.0
        )

    def times(self) -> dict[str, float]:
        """Seconds of compilation and of the run itself, and steps per second after the first yield.

        The first yield comes later than its steps take at that rate, by what is counted as compilation (with torch: the
        first calls); all of it where nothing came after.
        """
        rate, first = self.rate(), self.first - self.began
        compilation = max(0.0, first - (self.first_step - self.start) / rate) if rate else first
        total = time.monotonic() - self.began
        return {
            "compile_seconds": compilation,
            "run_seconds": total - compilation,
            "steps_per_second": rate,
        }
