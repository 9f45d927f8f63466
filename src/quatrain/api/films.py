"""an animation -> a picture that notebooks show, and a file."""

from base64 import b64encode
from pathlib import Path
from typing import NamedTuple

from quatrain.api.arguments import as_path
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.disk_errors import raised_as_disk_error


class Film(NamedTuple):
    """Holds an animation as GIF, and a sentence about it; notebooks show it."""

    gif: bytes
    caption: str

    def save(self, path: str | Path) -> Path:
        """Writes the GIF file; returns its path. Raises DiskError where it cannot be written."""
        file = as_path(path)
        with raised_as_disk_error(file):
            write_durably(file, self.gif)
        return file

    def __repr__(self) -> str:
        return f"<quatrain.Film of {len(self.gif):,} bytes: {self.caption}>"

    def _repr_html_(self) -> str:
        return f'<img src="data:image/gif;base64,{b64encode(self.gif).decode()}">'
