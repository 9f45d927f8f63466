"""a section of the packaged params.yaml, changes of a caller -> a checked config."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from quatrain.presets import read_raw
from quatrain.section import Section
from quatrain.validation import overlaid, validate_section

SectionType = TypeVar("SectionType", bound=Section)


@cache
def default_params() -> Mapping[str, Any]:
    """Returns the defaults of params.yaml, not validated."""
    return read_raw(Path(__file__).parents[2] / "defaults")


def configure(
    name: str, schema: type[SectionType], model: str, changes: Mapping[str, Any]
) -> SectionType:
    """Returns `env` of a model's defaults with changes; a mapping changes the keys that it names.

    Raises:
        ConfigError: a change is not allowed; says which environment, key, value and why.
    """
    return validate_section(schema, overlaid(default_params()[model]["env"], changes), None, name)
