"""a stage of a JAX model -> the folder of jax's persistent compilation cache, so that the next run
compiles less.

jax limits the size of a folder and evicts the least recently used programs. It reads its settings
from variables when it is loaded, and loads a program of an equal key. That key names neither
processor nor threads, although both shape the machine code: so they name the folder.

Two things jax does not do. A process that is killed while it writes leaves a program without the
time of its use, and then jax cannot write any other: `tidy` removes it. And nobody would remove the
folders of other machines.
"""

import hashlib
import os
import platform
import re
import shutil
import warnings
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.runtime import file_lock
from pipeline.runtime.devices import cpu_name, device_of
from quatrain.params import Params

FOLDER = ".jax_cache"
# Limit of a folder; the programs of a run are about 1 MB.
MAX_BYTES = 256 * 2**20
KEPT_FOLDERS = 4
# jax's lock file in a folder, which it takes for each program that it reads or writes.
LOCK = ".lockfile"
PROGRAM_SUFFIX = "-cache"
TIME_SUFFIX = "-atime"
FOLDER_NAME = re.compile(r"[0-9][\w.]*-[0-9a-f]{16}")
FAILURE = re.compile(
    r"Error (?P<action>reading|writing) persistent compilation cache entry for '(?P<program>.*)': "
)
SETTINGS = {
    "JAX_COMPILATION_CACHE_MAX_SIZE": str(MAX_BYTES),
    # A dozen small programs are a fifth of a second.
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    # XLA's own caches have no limit, and make the path part of the key.
    "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",
}


def enable(root: Path, params: Params) -> None:
    """Lets jax, which is not loaded yet, look for compiled programs and store those that it
    compiles.

    They are in the checkout, or where JAX_COMPILATION_CACHE_DIR says. Any failure is only a
    warning.
    """
    configured = os.environ.get("JAX_COMPILATION_CACHE_DIR", "").strip()
    if "://" in configured:
        return
    base = Path(configured) if configured else checkout_of(root) / FOLDER
    name = folder_name(params)
    folder = base if base.name == name else base / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # If another process has jax's lock, the folder is tidied already.
        lock = file_lock.acquire(folder / LOCK, patience_seconds=0.0)
        if lock is not None:
            try:
                tidy(folder)
            finally:
                os.close(lock)
    except OSError as error:
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        warnings.warn(
            f"compiled programs are not kept: {folder}: {error.strerror or error}", stacklevel=2
        )
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.absolute())
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    if device_of(params, "jax") == "cpu":
        # On some processors XLA warns about its own programs, with a page of processor features for
        # each.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    remove_damaged_programs(folder)


def checkout_of(root: Path) -> Path:
    """Returns the checkout of a working folder: of an experiment (`dvc exp run --temp`), of a
    preset, or itself.
    """
    checkout = Path(os.environ.get("DVC_ROOT") or root).absolute()
    return checkout.parents[1] if checkout.parent.name == ".presets" else checkout


def folder_name(params: Params) -> str:
    """Returns a name for what machine code depends on and jax's own key leaves out."""
    threads = str(max(params.threads, params.devices))  # each device of a CPU has one at least
    digest = hashlib.sha256(
        "\n".join([platform.machine(), cpu_name(), cpu_features(), threads]).encode()
    ).hexdigest()
    return f"{version('jaxlib')}-{digest[:16]}"


def cpu_features() -> str:
    """Returns the processor's features; equal names can differ in them, for a virtual machine may
    hide some.
    """
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""


def tidy(folder: Path) -> None:
    """Removes half-written programs, and the folders that have not been used for longest."""
    names = {path.name for path in folder.iterdir()}
    for suffix, other in ((PROGRAM_SUFFIX, TIME_SUFFIX), (TIME_SUFFIX, PROGRAM_SUFFIX)):
        for name in names:
            if name.endswith(suffix) and name.removesuffix(suffix) + other not in names:
                (folder / name).unlink(missing_ok=True)
    os.utime(folder)
    used = [
        path
        for path in folder.parent.iterdir()
        if FOLDER_NAME.fullmatch(path.name) and (path / LOCK).exists()
    ]
    for old in sorted(used, key=lambda path: path.stat().st_mtime)[:-KEPT_FOLDERS]:
        shutil.rmtree(old, ignore_errors=True)


def remove_damaged_programs(folder: Path) -> None:
    """Removes each program that jax fails to load, so that it is compiled anew; warns only once."""
    show = warnings.showwarning
    has_warned = False

    def showwarning(message: Warning | str, *location: Any, **options: Any) -> None:
        nonlocal has_warned
        failure = FAILURE.match(str(message))
        if failure is None:
            return show(message, *location, **options)
        action, program = failure.groups()
        if action == "reading":
            for damaged in folder.glob(f"{program}-*"):
                with suppress(OSError):
                    damaged.unlink()
        if not has_warned:
            has_warned = True
            show(
                UserWarning(
                    f"a compiled program was compiled anew: {folder}: "
                    f"{action} {program}: {str(message)[failure.end() :]}"
                ),
                *location,
                **options,
            )

    warnings.showwarning = showwarning
