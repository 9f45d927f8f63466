"""params.yaml (and an overlay of presets/) -> Params, or one line that says what is wrong."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from pipeline.runtime.errors import ConfigError, raised_as
from quatrain import errors, presets, validation
from quatrain.params import Params
from quatrain.section import Content
from quatrain.storage import input_files
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import escaped
from quatrain.validation import describe as describe
from quatrain.validation import nearest as nearest
from quatrain.validation import overlaid as overlaid
from quatrain.validation import tuples as tuples


def read_params(root: Path, preset: str | None = None) -> Params:
    """Returns the validated `root/params.yaml` with the values of `root/presets/PRESET.yaml`, if
    one is named.

    Raises:
        ConfigError: the file or a value in it cannot be used.
    """
    raw = read_raw(root, preset)
    try:
        return validate(raw, lambda name: read_input(root, str(name)))
    except ConfigError as error:
        if preset in (None, "default"):
            raise
        raise ConfigError(f"with presets/{preset}.yaml: {error}") from None


def check_params(options: Any) -> None:
    """Refuses a wrong params.yaml of the current folder, with the preset of a command's options,
    before the command is loaded.

    Raises:
        ConfigError: the file or a value in it cannot be used.
    """
    read_params(Path.cwd(), getattr(options, "preset", None))


def read_raw(root: Path, preset: str | None = None) -> dict[str, Any]:
    """Returns params.yaml with the values of a preset, not validated (`presets.read_raw`).

    Raises:
        ConfigError: a file is not YAML, or there is no such preset.
    """
    with raised_as(ConfigError, errors.ConfigError):
        return presets.read_raw(root, preset)


def parse(path: Path) -> dict[str, Any]:
    """Returns the mapping of a YAML file (`presets.parse`).

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    with raised_as(ConfigError, errors.ConfigError):
        return presets.parse(path)


def write_value(path: Path, key: str, value: int) -> None:
    """Sets a number at the top of a YAML file; every other character stays, comments among them.

    Raises:
        ConfigError: the file cannot be read, or has no such key.
    """
    parse(path)
    text = path.read_bytes().decode()
    nodes = {name.value: node for name, node in YAML().compose(text).value}
    if key not in nodes:
        raise ConfigError(f"{path.name}: {key} is missing")
    start, end = nodes[key].start_mark.index, nodes[key].end_mark.index
    write_durably(path, f"{text[:start]}{value}{text[end:]}".encode())


def read_content(path: Path) -> Content:
    """Returns the content of a file that a config names (`input_files.read_content`).

    Raises:
        ConfigError: it is missing, not a regular file, too large or damaged.
    """
    with raised_as(ConfigError, errors.ConfigError):
        return input_files.read_content(path)


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
        raise ValueError(f"{name} is outside inputs/; copy the file there and name it by that path")
    if not is_there:
        names = [
            str(path.relative_to(root)) for path in sorted(folder.rglob("*")) if path.is_file()
        ]
        raise ValueError(f"{name} is not there{nearest(name, names)}")
    try:
        return read_content(path)
    except ConfigError as error:
        raise ValueError(str(error)) from None


def validate(raw: Mapping[str, Any], read_input: Callable[[object], Content]) -> Params:
    """Returns the Params of a mapping; `read_input` returns the content of a file that it names.

    Raises:
        ConfigError: says what is wrong first, and how many more errors there are.
    """
    with raised_as(ConfigError, errors.ConfigError):
        return validation.validate(raw, read_input)
