"""params.yaml (and an overlay of presets/) -> Params, or one line that says what is wrong."""

import io
import json
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.section import Content
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import escaped
from quatrain.storage.input_files import read_content
from quatrain.validation import nearest, overlaid, validate

SCHEMA_FILE = "params.schema.json"
# Folder of the workspaces of presets.
PRESETS = ".presets"


def workspace_of(root: Path, preset: str) -> Path:
    """Returns the folder of a preset: the checkout for the default one, else a copy with outputs of
    its own.
    """
    return root if preset == "default" else root / PRESETS / preset


def dvc_root(root: Path) -> Path:
    """Returns the folder in which DVC was started; `dvc exp run --temp` works in a copy of it."""
    return Path(os.environ.get("DVC_ROOT") or root).absolute()


def checkout_of(work: Path) -> Path:
    """Returns the checkout of a preset's workspace; of any other folder, itself."""
    return work.parents[1] if work.parent.name == PRESETS else work


def read_params(
    root: Path, preset: str | None = None, changes: Mapping[str, Any] | None = None
) -> Params:
    """Returns the validated `root/params.yaml` with the values of `root/presets/PRESET.yaml`, if
    one is named, and then with some values changed.

    Raises:
        ConfigError: the file or a value in it cannot be used.
    """
    raw = overlaid(read_raw(root, preset), changes or {})
    is_own = preset in (None, "default")
    try:
        params = validate(raw, lambda name: read_input(root, str(name)))
        for model in MODELS:
            check_inputs(model, getattr(params, model).model_dump())
    except ConfigError as error:
        if is_own:
            raise
        raise ConfigError(f"with presets/{preset}.yaml: {error}") from None
    if is_own and params.preset != "default" and (root / ".git").exists():
        raise ConfigError(
            f"params.yaml: preset = {params.preset!r}: a checkout's own is default; set it back, "
            f"and run `make repro PRESET={params.preset}`"
        )
    return params


def check_inputs(model: str, section: Any) -> None:
    """Raises ConfigError if a section names a file that its stages in dvc.yaml do not depend on."""
    if isinstance(section, Mapping):
        name = str(section.get("name"))
        if name.startswith("inputs/") and not name.startswith(f"inputs/{model}/"):
            reason = f"params.yaml: {model}: {name} lies outside inputs/{model}/"
            raise ConfigError(f"{reason}, so that DVC would not see it change; copy it there")
        for part in section.values():
            check_inputs(model, part)


def print_raw(root: Path, preset: str) -> None:
    """Prints params.yaml with the values of a preset."""
    YAML().dump(read_raw(root, preset), sys.stdout)


def write_raw(path: Path, raw: Mapping[str, Any], head: str = "") -> None:
    """Writes params, or a preset, as YAML below a line of comment."""
    text = io.StringIO(head)
    text.seek(len(head))
    YAML().dump(dict(raw), text)
    write_durably(path, text.getvalue().encode())


def write_schema(root: Path) -> None:
    """Writes the JSON schema by which editors complete and check params.yaml."""
    text = f"{json.dumps(Params.model_json_schema(), indent=1)}\n"
    write_durably(root / SCHEMA_FILE, text.encode())


def write_value(path: Path, key: str, value: int) -> None:
    """Sets a number at the top of a YAML file; every other character stays, comments among them.

    Raises:
        ConfigError: the file has no such line.
    """
    text, count = re.subn(
        rf"(?m)^({key}[ \t]*:[ \t]+)[^\s#]+", rf"\g<1>{value}", path.read_bytes().decode()
    )
    if count != 1:
        raise ConfigError(f"{path.name}: write `{key}: NUMBER` on a line of its own, at its start")
    write_durably(path, text.encode())


def read_input(root: Path, name: str) -> Content:
    """Returns the content of a file that a config names by a path under inputs/.

    Raises:
        ValueError: the file is outside inputs/, missing or damaged.
    """
    path = root / name
    folder = (root / "inputs").resolve()
    try:
        is_inside = path.resolve().is_relative_to(folder)
        is_there = path.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # too long, a loop, a null character
        raise ValueError(f"{escaped(name)[:80]}: is no usable path ({error})") from None
    if not is_inside:
        raise ValueError(f"{name} is outside inputs/; copy the file to inputs/MODEL/")
    if not is_there:
        names = [
            str(path.relative_to(root)) for path in sorted(folder.rglob("*")) if path.is_file()
        ]
        raise ValueError(f"{name} is not there{nearest(name, names)}")
    return read_content(path)
