"""values of keys, scores -> short texts."""

import json
from typing import Any


def as_json(value: Any) -> str:
    """Returns a text that tells 1 from 1.0, true and "1"."""
    return json.dumps(value, sort_keys=True)


def text_of(value: Any) -> str:
    """Returns a value as a person writes it: floats with four digits, text without quotes."""
    if isinstance(value, float):
        return f"{value:.4g}".replace("e-0", "e-").replace("e+0", "e")
    return value if isinstance(value, str) else as_json(value)


def shortened(text: str, longest: int) -> str:
    """Returns the text, or its beginning and end around `…`."""
    if len(text) <= longest:
        return text
    tail = (longest - 1) // 2
    return f"{text[: longest - 1 - tail]}…{text[-tail:]}"


def number(value: float | None) -> str:
    """Formats a score with five digits; `-` if there is none."""
    return "-" if value is None else f"{value:.5g}"
