"""a file that `storage.figures` wrote -> what it says beside its pixels"""

from pathlib import Path
from typing import NamedTuple

from PIL import Image, UnidentifiedImageError

from pipeline.runtime.errors import ArtifactError

# Suffix -> media type of the pictures that are stored.
MEDIA = {".png": "image/png", ".gif": "image/gif"}


class StoredPicture(NamedTuple):
    """Holds what a file of a picture says. place: in the story that the pictures tell."""

    place: int
    caption: str
    width: int
    height: int
    media: str


def read_picture(path: Path) -> StoredPicture:
    """Returns what a stored picture says, without its pixels.

    Raises:
        ArtifactError: it is no picture.
    """
    try:
        with Image.open(path) as image:
            comment = image.info.get("Comment") or image.info.get("comment") or b""
            width, height = image.size
    except (UnidentifiedImageError, OSError):
        where = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
        raise ArtifactError(f"{where}: is no picture; run `dvc repro` to write it anew") from None
    text = comment.decode() if isinstance(comment, bytes) else str(comment)
    place, _, caption = text.partition(" ")
    if not place.isdigit():  # a picture from elsewhere
        place, caption = "0", ""
    return StoredPicture(int(place), caption, width, height, MEDIA[path.suffix])
