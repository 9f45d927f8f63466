"""params, code, inputs and settings -> the key that names a computation."""

import ast
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pipeline.storage.artifacts import digest_of, file_digest, folder_digest

# Modules that shape the bytes of a result.
WRITERS = (
    "pipeline/storage/artifacts.py",
    "src/quatrain/storage/folders.py",
    "src/quatrain/storage/formats.py",
    "src/quatrain/storage/history.py",
    "src/quatrain/storage/trees.py",
)


def run_key(
    stage: str,
    params: Mapping[str, Any],
    root: Path,
    code: Iterable[Path],
    inputs: Iterable[Path | str],
    settings: Mapping[str, Any],
) -> str:
    """Returns the key of a computation: a digest of all that its result depends on.

    A checkpoint of another key is never continued. `code`: files, and folders of *.py files, by
    name relative to the checkout `root`: the working folder does not matter. `inputs`: artifact
    folders, files or digests. `settings`: device, threads, versions of libraries.

    Raises:
        DataError: a file of `code` or `inputs` cannot be read.
    """
    files = [file for path in code for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return digest_of(
        {
            "stage": stage,
            "params": dict(params),
            "code": {os.path.relpath(file, root): file_digest(file) for file in files},
            "inputs": [_input_digest(item) for item in inputs],
            "settings": dict(settings),
        }
    )


def _input_digest(item: Path | str) -> str:
    if isinstance(item, str):
        return item
    return folder_digest(item) if item.is_dir() else file_digest(item)


def code_of(root: Path, modules: Iterable[str]) -> list[Path]:
    """Returns the files that shape what these modules of quatrain compute: theirs, those of the
    modules that they import, and `root`'s writers.
    """
    files = {file_of(root, name) for name in imported_by(root, modules)}
    return sorted({*files, *(root / name for name in WRITERS)})


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
    names = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name.startswith("quatrain.") and _is_module(root, name)}


def _is_module(root: Path, name: str) -> bool:
    return file_of(root, name).is_file()


def file_of(root: Path, module: str) -> Path:
    """Returns the source of a module, or of a package: its __init__.py."""
    path = (root / "src").joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
