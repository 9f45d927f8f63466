"""the first picture of each model -> reports/cards: a small still, which git and its pages have."""

import io
from collections.abc import Mapping
from pathlib import Path

from PIL import Image, ImageSequence

# Pixels of a still's longer side, and the quality of its WebP.
SIDE = 480
QUALITY = 60
FOLDER = "cards"


def stills_of(reports: Path, pictures: Mapping[str, str]) -> dict[str, bytes]:
    """Returns file name -> content; pictures: model -> path below `reports`, of a still of a model
    that did not run here that still.
    """
    return {
        f"{model}.webp": (
            (reports / path).read_bytes() if path == still_path(model) else _still(reports / path)
        )
        for model, path in pictures.items()
    }


def still_path(model: str) -> str:
    """Returns the path of a still, relative to the report."""
    return f"{FOLDER}/{model}.webp"


def _still(path: Path) -> bytes:
    """Returns a picture, of a film its last frame, as a small WebP on white."""
    with Image.open(path) as image:
        *_, last = ImageSequence.Iterator(image)
        small = last.convert("RGB")
    small.thumbnail((SIDE, SIDE))
    data = io.BytesIO()
    small.save(data, format="WEBP", quality=QUALITY)
    return data.getvalue()
