"""params, code, inputs and settings -> the key that names a computation."""

import ast
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from quatrain.params import Params
from quatrain.storage.folders import digest_of, file_digest

# The folder of this code; a stage works in the current folder, which is another one in tests.
CHECKOUT = Path(__file__).resolve().parents[2]
# The modules of a model that shape a stage's outputs, with those that they import.
COMPUTING = {
    "collect": ("collect",),
    "train": ("collect", "train"),
    "evaluate": ("collect", "train", "evaluate", "plots"),
}
# What shapes a learner beside its model's section. `device` and `devices` say where it is computed,
# `checkpoint_seconds` how often it is saved, and `preset` names the values: a learner may be
# evaluated under others of these.
SHAPING = ("seed", "threads", "deterministic")
# Modules that shape the bytes of a result.
WRITERS = (
    "src/quatrain/storage/folders.py",
    "src/quatrain/storage/formats.py",
    "src/quatrain/storage/history.py",
    "src/quatrain/storage/trees.py",
)


def run_key(
    stage: str,
    params: Mapping[str, Any],
    code: Iterable[Path],
    inputs: Iterable[str],
    settings: Mapping[str, Any],
) -> str:
    """Returns the key of a computation: a digest of all that its result depends on.

    A checkpoint of another key is never continued. `code`: files of the checkout. `inputs`: digests
    of artifacts. `settings`: device, threads, versions of libraries, code of a user.

    Raises:
        FolderError: a file of `code` cannot be read.
    """
    return digest_of(
        {
            "stage": stage,
            "params": dict(params),
            "code": {os.path.relpath(file, CHECKOUT): file_digest(file) for file in code},
            "inputs": list(inputs),
            "settings": dict(settings),
        }
    )


def shaping(params: Params) -> dict[str, Any]:
    return params.model_dump(mode="json", include=set(SHAPING))


def inputs_of(folder: Path) -> dict[str, str]:
    """Returns the digests of a model's input files by name.

    Raises:
        FolderError: one cannot be read.
    """
    paths = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): file_digest(path) for path in paths if path.is_file()}


def code_of(package: str, verb: str) -> list[Path]:
    """Returns the files that shape what a verb computes: the modules of a model, the modules of
    quatrain that they import, and the writers.
    """
    modules = imported_by(CHECKOUT, [f"{package}.{name}" for name in COMPUTING[verb]])
    files = {file_of(CHECKOUT, name) for name in modules}
    return sorted({*files, *(CHECKOUT / name for name in WRITERS)})


def imported_by(root: Path, modules: Iterable[str]) -> set[str]:
    """Returns these modules of quatrain and those that their sources import, directly or through
    others, whether or not this process has loaded them.
    """
    visited: set[str] = set()
    pending = set(modules)
    while pending:
        visited |= pending
        pending = set().union(*(imports(root, file_of(root, name)) for name in pending)) - visited
    return visited


def imports(root: Path, file: Path) -> set[str]:
    """Returns the modules of quatrain that a source imports, wherever it does."""
    names = _imported_names(file.read_bytes())
    return {
        name for name in names if name.startswith("quatrain.") and file_of(root, name).is_file()
    }


@cache
def _imported_names(source: bytes) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def file_of(root: Path, module: str) -> Path:
    """Returns the source of a module, or of a package: its __init__.py."""
    path = (root / "src").joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
