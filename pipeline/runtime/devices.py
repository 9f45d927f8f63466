"""device, threads and determinism of params.yaml -> a record of what a result depends on."""

import platform
from importlib.metadata import version
from pathlib import Path

from quatrain.devices import device_of as device_of
from quatrain.devices import on_device as on_device
from quatrain.params import Params
from quatrain.registry import Framework

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "torch", "numpy", "scipy")


def settings(params: Params, framework: Framework) -> dict[str, str]:
    """Returns what a result depends on beside code, params and data; recorded in manifests and
    tags.
    """
    return {
        "device": device_of(params, framework),
        "threads": str(params.threads),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        **{name: version(name) for name in LIBRARIES},
    }


def cpu_name() -> str:
    """Returns the processor's model name: CPU results repeat bit for bit only on the same type."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    keys = ("model name", "model\t", "cpu family")
    values = [line.split(":", 1)[1].strip() for line in lines if line.startswith(keys)]
    return " / ".join(values[:3]) or platform.machine()
