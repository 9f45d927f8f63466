"""this machine, params.yaml -> a record of what a result depends on, the memory left, and
jax's compilation cache.
"""

import hashlib
import os
import platform
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path

import psutil

from pipeline.runtime.processes import lock_file
from quatrain.devices import DETERMINISTIC_XLA, device_of, framework_environment
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
JAX_CACHE = ".jax_cache"
# jax's lock file in a folder, which it takes for each program that it reads or writes.
JAX_CACHE_LOCK = ".lockfile"
JAX_CACHE_SETTINGS = {
    # Limit of a folder; the programs of a run are about 1 MB.
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(256 * 2**20),
    # A dozen small programs are a fifth of a second.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # XLA's own caches have no limit, and make the path part of the key.
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}


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
        **library_versions(),
        **({"flags": flags} if flags else {}),
    }


@cache
def library_versions() -> dict[str, str]:
    return {name: version(name) for name in LIBRARIES}


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


def enable_jax_cache(checkout: Path, params: Params) -> None:
    """Lets jax, which is not loaded yet, look for compiled programs and store those that it
    compiles: in the checkout, or where JAX_COMPILATION_CACHE_DIR says.

    jax limits the size of the folder, evicts the least recently used programs, and compiles anew
    what it cannot read, with a warning; the folder may be removed at any time. Its key of a program
    names neither processor nor threads, although both shape the machine code: so they name the
    folder.
    """
    configured = os.environ.pop("JAX_COMPILATION_CACHE_DIR", "")
    base = Path(configured or checkout / JAX_CACHE).absolute()
    name = jax_cache_name(params)
    folder = base if base.name == name else base / name
    try:
        tidy_jax_cache(folder)
    except OSError as error:
        warnings.warn(f"compiled programs are not kept: {folder}: {error.strerror}", stacklevel=2)
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    for variable, value in JAX_CACHE_SETTINGS.items():
        os.environ.setdefault(variable, value)
    if device_of(params, "jax") == "cpu":
        # On some processors XLA warns about its own programs, with a page of processor features for
        # each.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def jax_cache_name(params: Params) -> str:
    """Returns a name for what machine code depends on and jax's own key leaves out."""
    threads = str(max(params.threads, params.devices))  # each device of a CPU has one at least
    machine = "\n".join([platform.machine(), cpu_name(), cpu_features(), threads])
    return f"{version('jaxlib')}-{hashlib.sha256(machine.encode()).hexdigest()[:16]}"


def tidy_jax_cache(folder: Path) -> None:
    """Makes the folder, and removes programs without the time of their use, which a killed process
    leaves and which keep jax from writing others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = lock_file(folder / JAX_CACHE_LOCK, patience_seconds=0.0)
    if lock is None:  # another process is at work in it
        return
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("cache") + "atime").exists():
            program.unlink()
    os.close(lock)
