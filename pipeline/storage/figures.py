"""figures and animations -> files of pictures in a folder of their own"""

import io
from collections.abc import Mapping
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

from pipeline.storage import atomic_write
from quatrain.animation import Animation

# How many times as long as the others the last frame is shown.
LAST_FRAME = 10


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


def write_figures(folder: Path, figures: Mapping[str, bytes]) -> None:
    """Makes the folder hold exactly these files; it has no manifest, because DVC shows every file
    in it.
    """
    for old in set(folder.glob("*")) - {folder / name for name in figures}:
        old.unlink()
    for name, data in figures.items():
        atomic_write.write_durably(folder / name, data)
