"""a learner's arrays -> two slots on disk, of which the newest valid one is continued from."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.atomic_write import crash_point

SLOTS = ("slot-0", "slot-1")
ARRAYS = "learner.safetensors"


class Checkpoint(NamedTuple):
    step: int
    arrays: dict[str, np.ndarray]


class Checkpoints:
    """Keeps two slots in a folder; the newest valid checkpoint is never overwritten."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skipped: tuple[str, ...] = ()
        self._newest: str | None = None
        self._is_read = False

    def latest(self) -> Checkpoint | None:
        """Returns the newest valid checkpoint; `skipped` says why others are not valid."""
        valid = {}
        skipped = []
        for slot in SLOTS:
            if not (self.folder / slot).exists():
                continue
            try:
                contents, info, _ = folders.load(self.folder / slot, [ARRAYS])
                valid[slot] = Checkpoint(info["step"], contents[ARRAYS])
            except DataError as error:
                skipped.append(error.reason)
        self.skipped = tuple(skipped)
        self._newest = max(valid, key=lambda slot: valid[slot].step, default=None)
        self._is_read = True
        return valid[self._newest] if self._newest else None

    def save(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        """Writes into the slot that does not hold the newest valid checkpoint.

        Raises:
            DataError: an array is not finite or not of a storable dtype.
            OSError: e.g. the disk is full; both slots are unchanged.
        """
        if not self._is_read:
            self.latest()
        slot = SLOTS[1] if self._newest == SLOTS[0] else SLOTS[0]
        folders.save(self.folder / slot, {ARRAYS: arrays}, {"step": step})
        self._newest = slot

    def remove_others(self, kept: int) -> None:
        """Removes the folders of other computations beside this one, except the latest.

        Those of a finished training stay: DVC may be killed before it notes that the stage is done.
        """
        others = [path for path in self.folder.parent.glob("*/") if path != self.folder]
        others.sort(key=lambda path: path.stat().st_mtime)
        for old in others[:-kept]:
            shutil.rmtree(old)

    def clear(self) -> None:
        if self.folder.exists():
            crash_point(shutil.rmtree, self.folder)
        self._newest = None
        self._is_read = True
