"""load of the machine -> metrics `system/...`, under the names that MLflow's UI groups.

MLflow's own monitor sends from a thread, and waits for a server that is away.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psutil

EVERY_SECONDS = 5.0
MEGABYTE = 1e6


class SystemMetrics:
    """Samples the machine at most every EVERY_SECONDS; a step counts samples, as in MLflow."""

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
