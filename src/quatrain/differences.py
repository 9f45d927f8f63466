"""two nested mappings -> the dotted keys whose values differ, with both values"""

from collections.abc import Mapping
from typing import Any

# In place of the value of a key that one side does not have.
UNSET = "unset"


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Returns both values of each dotted key whose values differ."""
    pairs: dict[str, tuple[Any, Any]] = {}
    for key in {**before, **after}:
        old, new = (side.get(key, UNSET) for side in (before, after))
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            pairs |= {f"{key}.{inner}": pair for inner, pair in differing(old, new).items()}
        elif old != new:
            pairs[key] = old, new
    return pairs
