"""this machine, params.yaml -> a record of what a result depends on, and the memory left."""

import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import psutil

from quatrain.devices import DETERMINISTIC_XLA, framework_environment
from quatrain.devices import device_of as device_of
from quatrain.devices import on_device as on_device
from quatrain.params import Params
from quatrain.registry import Framework

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "torch", "numpy", "scipy")
# Beginnings of variables by which users change what libraries compute, and of those among them that
# change no number.
SHAPING: tuple[str, ...] = ("ATEN_", "DNNL_", "JAX_", "MKL_", "NVIDIA_TF32", "ONEDNN_")
SHAPING += ("OPENBLAS_", "TORCH_ALLOW_TF32", "XLA_")
HARMLESS: tuple[str, ...] = ("JAX_CHECK_", "JAX_COMPILATION_CACHE_", "JAX_DEBUG_", "JAX_DUMP_")
HARMLESS += ("JAX_ENABLE_CHECKS", "JAX_EXPLAIN_", "JAX_LOG", "JAX_PERSISTENT_CACHE_")
HARMLESS += ("JAX_TRACEBACK_", "XLA_PYTHON_")
GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def settings(params: Params, framework: Framework) -> dict[str, str]:
    """Returns what a result depends on beside code, params and data; recorded in manifests and
    tags.

    `flags` is there only where variables of the user may change what is computed.
    """
    flags = flags_of(params, os.environ)
    return {
        "device": device_of(params, framework),
        "threads": str(params.threads),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        **{name: version(name) for name in LIBRARIES},
        **({"flags": flags} if flags else {}),
    }


def flags_of(params: Params, environment: Mapping[str, str]) -> str:
    """Returns the variables that may change numbers, without those that params.yaml decides."""
    ours = framework_environment(params, {}).keys() - {"XLA_FLAGS"}
    flags = {
        name: " ".join(word for word in text.split() if word != DETERMINISTIC_XLA)
        for name, text in sorted(environment.items())
        if name.startswith(SHAPING) and not name.startswith(HARMLESS)
        if name not in ours and not name.endswith("_NUM_THREADS")
    }
    return " ".join(f"{name}={text}" for name, text in flags.items() if text)


def cpu_name() -> str:
    """Returns the processor's model name: CPU results repeat bit for bit only on the same type."""
    values = cpu_info("model name", "model\t", "cpu family")
    return " / ".join(values[:3]) or platform.processor() or platform.machine()


def cpu_features() -> str:
    """Returns the processor's features; equal names can differ in them, for a virtual machine may
    hide some.
    """
    return next(iter(cpu_info("flags", "Features")), "")


def cpu_info(*keys: str) -> list[str]:
    """Returns what Linux says of the processor under these keys; nothing on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(":")[2].strip() for line in lines if line.startswith(keys)]


def free_memory() -> int:
    """Returns the bytes that the machine has left, or less if a control group allows less.

    Swap counts, for what it holds runs; file caches count, for they are given back.
    """
    of_machine = psutil.virtual_memory().available + psutil.swap_memory().free
    return max(0, min([of_machine, *_left_by_groups()]))


def _left_by_groups() -> Iterator[int]:
    """Yields what each limited group (cgroup v2) that this process is in leaves."""
    try:
        group = OWN_GROUP.read_text().partition("0::/")[2].strip()
    except OSError:
        return
    # Inside a container the path may be one of the host, and the root its own group.
    for folder in (GROUPS / group, *(GROUPS / group).parents):
        with suppress(OSError, ValueError):  # no group of ours, or one without a limit: `max`
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            pairs = map(str.split, (folder / "memory.stat").read_text().splitlines())
            yield limit - used + int(dict(pairs).get("file", 0))
