"""a stage of a JAX model -> the folder of jax's persistent compilation cache, so that the next run
compiles less.

jax limits the size of a folder, evicts the least recently used programs, and compiles anew what it
cannot read, with a warning; the folder may be removed at any time. Its key of a program names
neither processor nor threads, although both shape the machine code: so they name the folder.
"""

import hashlib
import os
import platform
import re
import shutil
import warnings
from importlib.metadata import version
from pathlib import Path

from pipeline.runtime import file_lock
from pipeline.runtime.devices import cpu_features, cpu_name, device_of
from quatrain.params import Params

FOLDER = ".jax_cache"
KEPT_FOLDERS = 4
# What `folder_name` returns.
FOLDER_NAME = re.compile(r"[0-9][\w.]*-[0-9a-f]{16}")
# jax's lock file in a folder, which it takes for each program that it reads or writes.
LOCK = ".lockfile"
SETTINGS = {
    # Limit of a folder; the programs of a run are about 1 MB.
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(256 * 2**20),
    # A dozen small programs are a fifth of a second.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # XLA's own caches have no limit, and make the path part of the key.
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}


def enable(checkout: Path, params: Params) -> None:
    """Lets jax, which is not loaded yet, look for compiled programs and store those that it
    compiles: in the checkout, or where JAX_COMPILATION_CACHE_DIR says.
    """
    configured = os.environ.pop("JAX_COMPILATION_CACHE_DIR", "")
    base = Path(configured or checkout / FOLDER).absolute()
    name = folder_name(params)
    folder = base if base.name == name else base / name
    try:
        tidy(folder)
    except OSError as error:
        warnings.warn(f"compiled programs are not kept: {folder}: {error.strerror}", stacklevel=2)
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    if device_of(params, "jax") == "cpu":
        # On some processors XLA warns about its own programs, with a page of processor features for
        # each.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def folder_name(params: Params) -> str:
    """Returns a name for what machine code depends on and jax's own key leaves out."""
    threads = str(max(params.threads, params.devices))  # each device of a CPU has one at least
    machine = "\n".join([platform.machine(), cpu_name(), cpu_features(), threads])
    return f"{version('jaxlib')}-{hashlib.sha256(machine.encode()).hexdigest()[:16]}"


def tidy(folder: Path) -> None:
    """Makes the folder, and removes what jax does not: programs without the time of their use,
    which a killed process leaves and which keep jax from writing others, and the folders beside it
    that were not used for longest.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = file_lock.acquire(folder / LOCK, patience_seconds=0.0)
    if lock is None:  # another process is at work in it
        return
    for program in folder.glob("*-cache"):
        if not program.with_name(program.name.removesuffix("cache") + "atime").exists():
            program.unlink()
    os.close(lock)
    os.utime(folder)
    beside = (path.parent for path in folder.parent.glob(f"*/{LOCK}"))
    ours = [path for path in beside if FOLDER_NAME.fullmatch(path.name)]
    for old in sorted(ours, key=lambda path: path.stat().st_mtime)[:-KEPT_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)
