"""progress of a learner -> a bar on a terminal, plain lines elsewhere."""

import math
import os
import sys
import time
from typing import Self

import numpy as np
from tqdm import tqdm

from pipeline.runtime import console
from quatrain.progress import Progress

# Lines of a whole run if stderr is not a terminal (CI, files), and their form.
LINES = 20
LINE = "{desc}: {n:,}/{total:,}  {rate_noinv_fmt}  {remaining} left{postfix}"


class ProgressBar:
    """Shows step, rate, remaining time and two metrics, and measures compilation separately."""

    def __init__(self, name: str, total: int, start: int, headline: tuple[str, ...]) -> None:
        self.start = start
        self.headline = headline
        self.printed_step = start
        self.first_step = start
        columns = os.get_terminal_size(sys.stderr.fileno()).columns if sys.stderr.isatty() else 0
        self.is_terminal = columns > 0
        if start:
            console.info(f"{name}: continues at step {start:,} of {total:,}")
        if start < total:
            console.info(f"{name}: preparing, then {total - start:,} steps")
        self.started_at = self.first_at = time.monotonic()
        self.bar = tqdm(
            total=total,
            initial=start,
            desc=name,
            unit=" steps",
            bar_format=None if self.is_terminal else LINE,
            delay=0 if self.is_terminal else math.inf,  # then it only counts
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def show(self, progress: Progress) -> None:
        if self.bar.n == self.start:
            self._end_compilation(progress.step)
        self.bar.update(progress.step - self.bar.n)
        values = {
            name: f"{np.mean(progress.metrics[name][-1]):.4g}"
            for name in self.headline
            if len(progress.metrics[name])
        }
        if values:
            self.bar.set_postfix(values, refresh=False)
        step, total = self.bar.n, self.bar.total
        is_due = (step - self.printed_step) * LINES >= total or step == total
        if is_due and not self.is_terminal:
            self.printed_step = step
            console.info(tqdm.format_meter(**{**self.bar.format_dict, "ncols": None}))

    def _end_compilation(self, step: int) -> None:
        """Lets rate and remaining time begin at the first yield."""
        self.first_at = time.monotonic()
        self.first_step = self.bar.initial = step
        self.bar.unpause()

    def times(self) -> dict[str, float]:
        """Returns the seconds of compilation, the other seconds, and steps per second after it.

        Compilation (with torch: the first calls) is the time to the first yield minus what its
        steps take at the later rate; all of that time if there is no later yield.
        """
        now = time.monotonic()
        steps, seconds = self.bar.n - self.first_step, now - self.first_at
        rate = steps / seconds if steps > 0 and seconds > 0 else 0.0
        compilation = self.first_at - self.started_at
        if rate:
            compilation = max(0.0, compilation - (self.first_step - self.start) / rate)
        return {
            "compile_seconds": compilation,
            "run_seconds": now - self.started_at - compilation,
            "steps_per_second": rate,
        }
