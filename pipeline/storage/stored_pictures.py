"""a file that `storage.figures` wrote -> what it says beside its pixels"""

from pathlib import Path
from typing import NamedTuple

from PIL import Image

from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.disk_errors import MACHINE, escaped
from quatrain.storage.formats import PARSER_ERRORS

# Suffix -> media type of the pictures that are stored.
MEDIA = {".png": "image/png", ".gif": "image/gif", ".webp": "image/webp"}


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
        DataError: it is no picture.
    """
    try:
        with folders.open_file(path) as file, Image.open(file) as image:
            comment = image.info.get("Comment") or image.info.get("comment") or b""
            width, height = image.size
            text = comment.decode() if isinstance(comment, bytes) else str(comment)
    except (*PARSER_ERRORS, OSError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.errno in MACHINE:
            raise
        where = f"{path.parent.parent.name}/{path.parent.name}/{escaped(path.name)}"
        raise DataError(f"{where}: is no picture; run `dvc repro` to write it anew") from None
    place, _, caption = text.partition(" ")
    if not place.isdecimal():  # a picture from elsewhere
        place, caption = "0", ""
    return StoredPicture(int(place), caption, width, height, MEDIA[path.suffix])
