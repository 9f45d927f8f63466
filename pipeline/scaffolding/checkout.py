"""the changes of a further model -> files of a checkout: all of them, or none."""

import keyword
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST = 24
TIDYING = (("check", "--quiet", "--select", "I", "--fix"), ("format", "--quiet"))


class Change(NamedTuple):
    """Holds the text of a file before, None if there is none, and afterwards."""

    old: str | None
    new: str


def check_name(root: Path, name: str) -> None:
    """Raises ConfigError unless a further model may have this name in this checkout.

    Raises:
        ConfigError: it is no name in snake case, a keyword, or in use.
    """
    if not NAME.fullmatch(name) or len(name) > LONGEST:
        raise ConfigError(
            f"{name!r} is no name of a model; give at most {LONGEST} small letters, digits and "
            "underscores that begin with a letter, such as my_model"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ConfigError(f"{name!r} is a keyword of Python; give another name")
    if name in MODELS:
        raise ConfigError(f"there is a model {name!r} already; give another name")
    if name in Params.model_fields:
        raise ConfigError(f"{name!r} is another key of params.yaml; give another name")
    if not (root / "params.yaml").is_file() or not (root / "dvc.yaml").is_file():
        raise ConfigError("run it in a checkout of the project: params.yaml or dvc.yaml is missing")
    for path in (f"src/quatrain/models/{name}", f"baselines/{name}.json", f"tests/models/{name}"):
        if (root / path).exists():
            raise ConfigError(f"{path} is there already; remove it, or give another name")


def write(root: Path, changes: Mapping[str, Change]) -> None:
    """Writes all files; if one cannot be written, takes back those that were.

    Raises:
        OSError: e.g. the disk is full.
    """
    begun: list[str] = []
    folders = _missing_folders(root, changes)
    try:
        for path, change in changes.items():
            begun.append(path)
            write_durably(root / path, change.new.encode())
    except BaseException:
        for path in begun:
            _restore(root / path, changes[path].old)
        for folder in sorted(folders, reverse=True):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        raise


def tidy(root: Path, paths: Iterable[str]) -> None:
    """Sorts imports and wraps lines with ruff, whose result depends on the length of the name;
    without ruff leaves them.
    """
    for command in TIDYING:
        ruff = [sys.executable, "-m", "ruff", *command, "--no-cache", *paths]
        subprocess.run(ruff, cwd=root, capture_output=True, check=False)


def _missing_folders(root: Path, changes: Iterable[str]) -> set[Path]:
    parents = {parent for path in changes for parent in (root / path).parents}
    return {parent for parent in parents if not parent.exists()}


def _restore(path: Path, text: str | None) -> None:
    if path.is_dir():
        return  # it was in the way
    if text is None:
        path.unlink(missing_ok=True)
    elif path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
