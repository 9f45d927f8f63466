"""figures -> PNG files in a folder of their own."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pipeline.storage import atomic_write


def png(figure: Any) -> bytes:
    """Returns the figure as PNG without the date and version that matplotlib would add."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110, metadata={"Software": None}, bbox_inches="tight")
    return data.getvalue()


def write_figures(folder: Path, figures: Mapping[str, bytes]) -> None:
    """Makes the folder hold exactly these files; it has no manifest, because DVC shows every file
    in it.
    """
    for old in set(folder.glob("*")) - {folder / name for name in figures}:
        old.unlink()
    for name, data in figures.items():
        atomic_write.write_durably(folder / name, data)
