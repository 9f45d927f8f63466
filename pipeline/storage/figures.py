"""figures and animations -> files of pictures in a folder of their own, and what they say."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from PIL import Image, UnidentifiedImageError

from pipeline.runtime.errors import ArtifactError
from pipeline.storage import atomic_write
from quatrain.animation import Animation

# Suffix -> media type of the pictures that are stored.
MEDIA = {".png": "image/png", ".gif": "image/gif"}
# How many times as long as the others the last frame is shown.
LAST_FRAME = 10


class StoredPicture(NamedTuple):
    """Holds what a file of a picture says. place: in the story that the pictures tell."""

    place: int
    caption: str
    width: int
    height: int
    media: str


def encode(pictures: Mapping[str, Figure | Animation]) -> dict[str, bytes]:
    """Returns file name -> content of pictures; each file holds its caption and place."""
    files = {}
    for place, (name, picture) in enumerate(pictures.items()):
        if isinstance(picture, Animation):
            files[f"{name}.gif"] = gif(picture, f"{place} {picture.caption}")
        else:
            files[f"{name}.png"] = png(picture, f"{place} {picture.get_label() or ''}")
    return files


def png(figure: Figure, comment: str | None = None) -> bytes:
    """Returns the figure as PNG without the date and version that matplotlib would add."""
    data = io.BytesIO()
    metadata = {"Software": None} | ({"Comment": comment} if comment else {})
    figure.savefig(data, format="png", dpi=110, metadata=metadata, bbox_inches="tight")
    return data.getvalue()


def gif(animation: Animation, comment: str) -> bytes:
    """Returns the animation as GIF that begins again after its last frame."""
    data = io.BytesIO()
    frames = [Image.fromarray(frame, "P") for frame in animation.frames]
    for frame in frames:
        frame.putpalette(animation.palette.tobytes())
    durations = [animation.milliseconds] * len(frames)
    durations[-1] *= LAST_FRAME
    frames[0].save(
        data,
        format="GIF",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        comment=comment.encode(),
    )
    return data.getvalue()


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
    known = place.isdigit()
    return StoredPicture(
        int(place) if known else 0, caption if known else "", width, height, MEDIA[path.suffix]
    )


def write_figures(folder: Path, figures: Mapping[str, bytes]) -> None:
    """Makes the folder hold exactly these files; it has no manifest, because DVC shows every file
    in it.
    """
    for old in set(folder.glob("*")) - {folder / name for name in figures}:
        old.unlink()
    for name, data in figures.items():
        atomic_write.write_durably(folder / name, data)
