"""figures and animations -> files of pictures in a folder of their own"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from quatrain.animation import Animation
from quatrain.storage.atomic_write import write_exactly

if TYPE_CHECKING:  # loading a command must not load matplotlib
    from matplotlib.figure import Figure

# Level of compression: a tenth more bytes in three quarters of the time.
FAST = 1


def encode(pictures: "Mapping[str, Figure | Animation]") -> dict[str, bytes]:
    """Returns file name -> content of pictures; each file holds its caption and place."""
    files = {}
    for place, (name, picture) in enumerate(pictures.items()):
        if isinstance(picture, Animation):
            files[f"{name}.gif"] = picture.gif(f"{place} {picture.caption}")
        else:
            files[f"{name}.png"] = png(picture, f"{place} {picture.get_label() or ''}")
    return files


def png(figure: "Figure", comment: str | None = None) -> bytes:
    """Returns the figure as PNG without the date and version that matplotlib would add."""
    from quatrain.plots import matplotlib_defaults

    data = io.BytesIO()
    metadata = {"Software": None} | ({"Comment": comment} if comment else {})
    with matplotlib_defaults({}):
        figure.savefig(
            data,
            format="png",
            dpi=110,
            metadata=metadata,
            bbox_inches="tight",
            pil_kwargs={"compress_level": FAST},
        )
    return data.getvalue()


def write_figures(folder: Path, figures: Mapping[str, bytes]) -> None:
    """Makes the folder hold exactly these files; it has no manifest, because DVC shows every file
    in it.
    """
    write_exactly(folder, figures)
