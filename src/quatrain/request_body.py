"""the body of a POST to a served model -> its inputs, read strictly; or one line that names the
error.
"""

import gc
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from quatrain.requests import cut, shown

MEDIA_TYPE = "application/json"
KEY = "inputs"
# Read in a fraction of a second, whatever is in it.
MOST_BYTES = 4 * 2**20


def read_body(content_type: str | None, body: bytes) -> Any:
    """Returns what the body has under `inputs`, as `validate_request` expects it.

    Raises:
        ValueError: the body is too large, another format, ambiguous, or has something else in it.
    """
    media = (content_type or "").partition(";")[0].strip().lower()
    if media != MEDIA_TYPE:
        raise ValueError(f"the Content-Type is {shown(media)}; send {MEDIA_TYPE}")
    if len(body) > MOST_BYTES:
        raise ValueError(
            f"the body has {len(body):,} bytes; send at most {MOST_BYTES:,}, in several requests"
        )
    content = _parse(body)
    remedy = f'send {{"{KEY}": {{name: values, ...}}}}'
    if not isinstance(content, dict):
        raise ValueError(f"the body is {shown(content)}; {remedy}")
    params = content.pop("params", None)
    if params is not None and params != {}:
        raise ValueError(f"params is {shown(params)}; the model has none: leave it out")
    if content.keys() != {KEY}:
        actual = cut(", ".join(content)) or "nothing"
        raise ValueError(f"the body has {actual}; {remedy}, and nothing else")
    return content[KEY]


def _parse(body: bytes) -> Any:
    try:
        with _no_collection():
            return json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except ValueError as error:
        raise ValueError(f"the body is not JSON: {error}; send JSON") from None
    except RecursionError:
        raise ValueError(
            "the body nests lists or objects too deeply; send lists as deep as the input's shape"
        ) from None


@contextmanager
def _no_collection() -> Iterator[None]:
    """Keeps Python from looking for garbage in all that the frameworks have loaded, which it else
    does again and again while a million lists are read.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):  # readers differ in which one counts
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"{shown(twice)} is twice in one object")
    return content
