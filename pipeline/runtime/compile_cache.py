"""a stage of a JAX model -> where jax keeps compiled programs, so that the next run need not compile them again.

jax reads all this in variables when it is loaded, and loads a program wherever its key is the same. That key tells
neither processor nor threads, although both shape the machine code: so they name the folder.
"""

import fcntl
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

from pipeline.runtime.devices import cpu_name, device_of
from quatrain.params import Params

FOLDER = ".jax_cache"
MAX_BYTES = 256 * 2**20
"""Of one kind of machine; the programs of a run are about 1 MB. Those that nobody used for longest go first."""
KINDS = 4
"""Kinds (processor, threads, version) whose programs are kept."""
LOCK, PROGRAM, USED = ".lockfile", "-cache", "-atime"
"""The files of jax in a folder: by which processes take turns, a program, and when it was used."""
KIND = re.compile(r"[0-9][\w.]*-[0-9a-f]{16}")
"""What `kind_of` gives."""
TROUBLE = re.compile(
    r"Error (?P<doing>reading|writing) persistent compilation cache entry for '(?P<program>.*)': "
)


def keep(root: Path, params: Params) -> None:
    """Let jax, which is not loaded yet, look for compiled programs before it compiles, and keep those it compiled.

    They lie in the checkout, or where JAX_COMPILATION_CACHE_DIR says. Whatever is wrong there costs a warning.
    """
    chosen = os.environ.get("JAX_COMPILATION_CACHE_DIR", "").strip()
    if "://" in chosen:
        return
    base, kind = Path(chosen) if chosen else checkout_of(root) / FOLDER, kind_of(params)
    folder = base if base.name == kind else base / kind
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        tidy_alone(folder)
    except OSError as error:
        os.environ.pop("JAX_COMPILATION_CACHE_DIR", None)
        warnings.warn(
            f"compiled programs are not kept: {folder}: {error.strerror or error}", stacklevel=2
        )
        return
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder.absolute())
    for name, value in {
        "JAX_COMPILATION_CACHE_MAX_SIZE": str(MAX_BYTES),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",  # a dozen small programs are a fifth of a second
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES": "none",  # theirs have no limit, and make the path part of the key
    }.items():
        os.environ.setdefault(name, value)
    if device_of(params, "jax") == "cpu":
        # On some processors XLA calls its own programs another machine's, with a page of features for each.
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    mend_what_is_damaged(folder)


def checkout_of(root: Path) -> Path:
    """The one that a working folder belongs to: of an experiment (`dvc exp run --temp`), of a preset, or itself."""
    checkout = Path(os.environ.get("DVC_ROOT") or root).absolute()
    return checkout.parents[1] if checkout.parent.name == ".presets" else checkout


def kind_of(params: Params) -> str:
    """Names what machine code depends on and jax's own key leaves out."""
    told = [platform.machine(), cpu_name(), cpu_features(), str(params.threads)]
    digest = hashlib.sha256("\n".join(told).encode()).hexdigest()
    return f"{version('jaxlib')}-{digest[:16]}"


def cpu_features() -> str:
    """What the processor can do; two of one name can differ, for a virtual machine may hide something."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith(("flags", "Features")):
                return line.partition(":")[2].strip()
    return ""


def tidy_alone(folder: Path) -> None:
    """Tidy behind the lock that jax takes for each program that it reads or writes; where another has it, it is tidy.

    Raises:
        OSError: the folder cannot be written.
    """
    with (folder / LOCK).open("a") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        tidy(folder)


def tidy(folder: Path) -> None:
    """Remove what a killed process left half-written, and the folders of kinds that have not been used for longest."""
    names = {path.name for path in folder.iterdir()}
    for name in names:
        program, mark = name[: -len(PROGRAM)], name[-len(PROGRAM) :]
        partner = {PROGRAM: USED, USED: PROGRAM}.get(mark)
        if (
            partner and program + partner not in names
        ):  # without the time of its use jax cannot write any other
            (folder / name).unlink(missing_ok=True)
    os.utime(folder)
    kinds = (
        path
        for path in folder.parent.iterdir()
        if KIND.fullmatch(path.name) and (path / LOCK).exists()
    )
    for old in sorted(kinds, key=lambda path: path.stat().st_mtime)[:-KINDS]:
        shutil.rmtree(old, ignore_errors=True)


def mend_what_is_damaged(folder: Path) -> None:
    """From now on a program that jax cannot load is removed, so that it is written anew; only the first is told of."""
    show, told = warnings.showwarning, False

    def showwarning(message: Warning | str, *where: Any, **further: Any) -> None:
        nonlocal told
        trouble = TROUBLE.match(str(message))
        if trouble is None:
            return show(message, *where, **further)
        if trouble["doing"] == "reading":
            for damaged in folder.glob(f"{trouble['program']}-*"):
                with suppress(OSError):
                    damaged.unlink()
        if not told:
            told = True
            reason = str(message)[trouble.end() :]
            line = f"a compiled program was compiled anew: {folder}: {trouble['doing']} {trouble['program']}: {reason}"
            show(UserWarning(line), *where, **further)

    warnings.showwarning = showwarning
