"""a training while it runs -> a bar or plain lines for the user, and the load of the machine."""

import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self

import numpy as np
import psutil
from tqdm import tqdm

from pipeline.runtime import console
from quatrain.progress import Progress

# Where stderr is no terminal (CI, files), a line after each quarter of a run stands for the bar;
# the stage itself prints that of its end.
LINES = 4
LINE = "{desc}: {n:,}/{total:,}  {rate_noinv_fmt}  {remaining} left{postfix}"
EVERY_SECONDS = 5.0
MEGABYTE = 1e6


class ProgressBar:
    """Shows step, rate, remaining time and two metrics, and measures compilation separately."""

    def __init__(self, name: str, total: int, start: int, headline: tuple[str, ...]) -> None:
        self.start = start
        self.headline = headline
        self.printed_step = start
        self.first_step = start
        columns = terminal_columns()
        self.is_terminal = columns > 0
        if start:
            console.info(f"{name}: continues at step {start:,} of {total:,}")
        self.started_at = self.first_at = time.monotonic()
        self.bar = tqdm(
            total=total,
            initial=start,
            desc=name,
            unit=" steps",
            ncols=None if sys.stderr.isatty() else columns,
            leave=False,
            bar_format=None if self.is_terminal else LINE,
            delay=0 if self.is_terminal else math.inf,  # then it only counts
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.close()

    def show(self, progress: Progress) -> None:
        if self.bar.n == self.start:  # rate and remaining time begin at the first yield
            self.first_at = time.monotonic()
            self.first_step = self.bar.initial = progress.step
            self.bar.unpause()
        self.bar.update(progress.step - self.bar.n)
        values = {
            name: f"{np.mean(progress.metrics[name][-1]):.4g}"
            for name in self.headline
            if len(progress.metrics[name])
        }
        if values:
            self.bar.set_postfix(values, refresh=False)
        step, total = self.bar.n, self.bar.total
        is_due = (step - self.printed_step) * LINES >= total and step < total
        if is_due and not self.is_terminal:
            self.printed_step = step
            console.info(tqdm.format_meter(**{**self.bar.format_dict, "ncols": None}))

    def times(self) -> tuple[float, float]:
        """Returns the seconds of compilation, and steps per second after it.

        Compilation (with torch: the first calls) is the time to the first yield minus what its
        steps take at the later rate; all of that time if there is no later yield.
        """
        now = time.monotonic()
        steps, seconds = self.bar.n - self.first_step, now - self.first_at
        rate = steps / seconds if steps > 0 and seconds > 0 else 0.0
        compilation = self.first_at - self.started_at
        if rate:
            compilation = max(0.0, compilation - (self.first_step - self.start) / rate)
        return compilation, rate


def terminal_columns() -> int:
    """Returns the width of the terminal, which may be that of the process that shows the output; 0
    without one.
    """
    if sys.stderr.isatty():
        return os.get_terminal_size(sys.stderr.fileno()).columns
    return int(os.environ.get(console.COLUMNS_VARIABLE) or 0)


class SystemMetrics:
    """Samples the machine at most every EVERY_SECONDS; a step counts samples, as in MLflow.

    The names are those that MLflow's UI groups; MLflow's own monitor sends from a thread, and waits
    for a server that is away.
    """

    def __init__(self, cuda: bool, samples: int = 0) -> None:
        self.samples = samples
        self._next_sample = time.monotonic()
        self._gpu = _gpu_monitor() if cuda else None
        psutil.cpu_percent()  # Each call returns the load since the call before.

    def rows(self) -> Iterator[tuple[str, int, float]]:
        """Yields (name, step, value) of one sample, or nothing until the next one is due."""
        now = time.monotonic()
        if now < self._next_sample:
            return
        self._next_sample = now + EVERY_SECONDS
        self.samples += 1
        memory = psutil.virtual_memory()
        sample = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_megabytes": psutil.Process().memory_info().rss / MEGABYTE,
        }
        if self._gpu is not None:
            self._gpu.collect_metrics()
            sample |= self._gpu.aggregate_metrics()
            self._gpu.clear_metrics()
        for name, value in sample.items():
            yield f"system/{name}", self.samples, value


def _gpu_monitor() -> Any:
    """Returns MLflow's monitor; None without nvidia-ml-py (requirements/gpu.txt) or its driver."""
    with suppress(ImportError, RuntimeError):
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        return GPUMonitor()
    return None
