"""what a run recorded of its machine -> words."""

from collections.abc import Mapping
from typing import Any

# What bits of a result on a CPU depend on, beside code, params and library versions.
KEYS = ("device", "cpu", "threads")


def machine_of(settings: Mapping[str, Any]) -> dict[str, str]:
    """Returns what recorded settings, or the provenance of a baseline, say of the machine."""
    return {key: str(settings[key]) for key in KEYS if settings.get(key) is not None}


def describe(machine: Mapping[str, str]) -> str:
    """Returns the machine in words: `AMD EPYC (family 26, model 2), 2 threads`."""
    *numbers, name = machine.get("cpu", "unknown CPU").split(" / ")
    if len(numbers) == 2:
        name += f" (family {numbers[0]}, model {numbers[1]})"
    device = machine.get("device", "cpu")
    where = [] if device in ("cpu", "auto") else [device]
    threads = machine.get("threads")
    count = [] if threads is None else [f"{threads} thread{'' if threads == '1' else 's'}"]
    return ", ".join([name, *where, *count])
