"""a folder with params.yaml and presets/ -> raw values, with those of a preset."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from quatrain.errors import ConfigError
from quatrain.storage.input_files import read_text
from quatrain.storage.yaml_text import parse_mapping
from quatrain.validation import nearest, overlaid


def read_raw(root: Path, preset: str | None = None) -> dict[str, Any]:
    """Returns params.yaml with the values of a preset, not validated.

    Raises:
        ConfigError: a file is not YAML, or there is no such preset.
    """
    raw = parse(root / "params.yaml")
    if preset in (None, "default"):
        return raw
    presets = names(root)
    if preset not in presets:
        hint = nearest(str(preset), presets)
        raise ConfigError(f"unknown preset {preset!r}{hint}; known: default, {', '.join(presets)}")
    overlay = parse(root / "presets" / f"{preset}.yaml")
    name = overlay.get("preset")
    if name != preset:
        raise ConfigError(f"presets/{preset}.yaml: preset is {name!r}; write preset: {preset}")
    return overlaid(raw, overlay)


def names(root: Path) -> list[str]:
    """Returns the names of the presets."""
    return sorted(path.stem for path in (root / "presets").glob("*.yaml"))


def parse(path: Path) -> dict[str, Any]:
    """Returns the mapping of a YAML file (`parse_mapping`).

    Raises:
        ConfigError: the file cannot be read, or holds anything else.
    """
    return deepcopy(_parsed(path.name, read_text(path)))


# A stage reads params.yaml again and again, to see whether it was edited; ruamel is slow.
_parsed = cache(parse_mapping)
