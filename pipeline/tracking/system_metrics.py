"""the machine -> rows of `system/...`: how busy it is while a stage works, under the names that MLflow's UI groups."""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil

EVERY_SECONDS = 5.0
MEGABYTE = 1e6


class Machine:
    """Samples at most every EVERY_SECONDS, when asked; a row's step counts samples, as MLflow's own do."""

    def __init__(self, cuda: bool, samples: int = 0) -> None:
        self.samples = samples
        self._due = time.monotonic()
        self._process = psutil.Process()
        self._gpu = _gpu_monitor() if cuda else None
        psutil.cpu_percent()  # which tells the share since it was asked last

    def rows(self) -> Iterator[tuple[str, int, float]]:
        """(name, step, value) of one sample, or nothing while none is due."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + EVERY_SECONDS
        self.samples += 1
        for name, value in self._sample().items():
            yield f"system/{name}", self.samples, value

    def _sample(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        found = {
            "cpu_utilization_percentage": psutil.cpu_percent(),
            "system_memory_usage_megabytes": memory.used / MEGABYTE,
            "system_memory_usage_percentage": memory.percent,
            "process_memory_megabytes": self._process.memory_info().rss / MEGABYTE,
        }
        if self._gpu is not None:
            self._gpu.collect_metrics()
            found |= self._gpu.aggregate_metrics()
            self._gpu.clear_metrics()
        return found


def _gpu_monitor() -> Any:
    """MLflow's own; None without nvidia-ml-py (requirements/gpu.txt) or its driver."""
    with suppress(ImportError, RuntimeError):
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        return GPUMonitor()
    return None
