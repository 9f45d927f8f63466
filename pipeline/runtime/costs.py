"""what a stage takes: seconds, CPU seconds, memory and energy, added up over its attempts."""

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from quatrain.errors import DataError

# Bytes of a unit of `ru_maxrss`.
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
MEGABYTE = 1e6
# Counters of Intel's and AMD's processors, which on many machines only root may read.
POWERCAP = Path("/sys/class/powercap")
PEAKS = ("memory_megabytes", "gpu_memory_megabytes")


class Counter(NamedTuple):
    """Holds the microjoules that a processor has used; `most`: after which it begins at 0."""

    name: str
    value: int
    most: int


def counters() -> Iterator[Counter]:
    """Yields the counter of each processor; none where the machine does not let them be read."""
    for domain in sorted(POWERCAP.glob("intel-rapl:?")):
        with suppress(OSError, ValueError):
            name = (domain / "name").read_text().strip()
            value, most = (
                int((domain / file).read_text()) for file in ("energy_uj", "max_energy_range_uj")
            )
            if name.startswith("package"):
                yield Counter(name, value, most)


def gpu_memory() -> int:
    """Returns the bytes that the framework of this process has held at most on a GPU, or 0."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_initialized():
        return int(torch.cuda.max_memory_allocated())
    devices: list[Any] = []
    with suppress(Exception):  # a device that is not there is what ended the stage
        devices = jax.local_devices() if jax is not None else []
    used = [each.memory_stats() for each in devices if each.platform == "gpu"]
    return max((stats.get("peak_bytes_in_use", 0) for stats in used if stats), default=0)


class Meter:
    """Measures a stage from now on, and adds what its earlier attempts took, which did not end.

    path: of the file with the sum, if it is kept. Energy is that of the whole processor, whatever
    else it works on; memory that of the largest process.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        before = {} if path is None else stored(path)
        self._sums: dict[str, float] = {} if before.get("is_done") else before.get("costs", {})
        self._is_stopped = False
        self._seconds, self._cpu_seconds = time.monotonic(), cpu_seconds()
        self._counters = [*counters()]

    def add(self, name: str, value: float) -> None:
        """Adds to a sum; of memory the largest counts."""
        before = self._sums.get(name, 0.0)
        self._sums[name] = max(before, value) if name in PEAKS else before + value

    def totals(self) -> dict[str, float]:
        """Returns each sum up to now, or up to the first `stop`."""
        if not self._is_stopped:
            now, cpu, new = time.monotonic(), cpu_seconds(), [*counters()]
            self.add("seconds", now - self._seconds)
            self.add("cpu_seconds", cpu - self._cpu_seconds)
            self.add("memory_megabytes", peak_memory() / MEGABYTE)
            for old, current in zip(self._counters, new, strict=False):
                self.add("energy_joules", (current.value - old.value) % current.most / 1e6)
            if on_gpu := gpu_memory():
                self.add("gpu_memory_megabytes", on_gpu / MEGABYTE)
            self._seconds, self._cpu_seconds, self._counters = now, cpu, new
        return {**self._sums}

    def stop(self) -> dict[str, float]:
        """Returns the sums; what follows, such as a delivery, counts no more."""
        totals = self.totals()
        self._is_stopped = True
        return totals

    def save(self, is_done: bool = False) -> None:
        """Stores the sums; no work fails because a disk has no place for them."""
        from quatrain.storage import folders

        if self._path is not None:
            with suppress(OSError):
                folders.write_json(self._path, {"is_done": is_done, "costs": self.totals()})


def stored(path: Path) -> dict[str, Any]:
    """Returns the `costs` that are stored of a stage, and whether it `is_done`, if they are."""
    from quatrain.storage import folders

    try:
        return dict(folders.read_json(path))
    except (DataError, OSError):
        return {}


def cpu_seconds() -> float:
    """Returns those of this process and of its children that have ended."""
    return sum(os.times()[:4])


def peak_memory() -> int:
    """Returns the bytes of the largest of this process and its children that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return MEMORY_UNIT * max(resource.getrusage(kind).ru_maxrss for kind in kinds)
