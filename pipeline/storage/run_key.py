"""params, code, inputs and settings -> the key that names a computation."""

import ast
import os
import sys
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
# Modules of a model that shape no output: some processes load them, others do not.
BESIDE = ("serve", "memory", "rules")


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
        ArtifactError: a file of `code` or `inputs` cannot be read.
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


def loaded_code(root: Path, model: str) -> list[Path]:
    """Returns the files that shape a model's outputs: its imported modules, what they import, and
    `root`'s writers.

    Modules of other models and BESIDE are left out: editing them must not restart this computation.
    """
    folder = f"quatrain.models.{model}."
    loaded = {name for name in sys.modules if name.startswith(folder)}
    modules = {name for name in loaded if name.rpartition(".")[2] not in BESIDE}
    files = {file_of(name) for name in imported_by(modules)}
    return sorted({*files, *(root / name for name in WRITERS)})


def imported_by(modules: set[str]) -> set[str]:
    """Returns these loaded modules of quatrain and those that they import, directly or through
    others.
    """
    visited: set[str] = set()
    pending = modules
    while pending:
        visited |= pending
        pending = set().union(*(_imports(name) for name in pending)) - visited
    return visited


def _imports(module: str) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(file_of(module).read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name for name in names if name in sys.modules and name.startswith("quatrain.")}


def file_of(module: str) -> Path:
    return Path(str(sys.modules[module].__file__)).resolve()
