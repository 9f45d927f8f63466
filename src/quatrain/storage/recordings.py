"""a file of recorded episodes, or a dataset of minari -> their numbers, and where they end"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from quatrain.envs.host.config import EPISODE, FLAGS
from quatrain.envs.host.spaces import LARGEST
from quatrain.envs.host.user_code import user_code
from quatrain.errors import DataError, PackageMissing
from quatrain.section import distinct

MINARI = "minari:"
OBSERVATIONS = "observations"


class Table(NamedTuple):
    """Holds the columns of a .csv file, or the arrays of an .npz file."""

    path: str
    arrays: Mapping[str, np.ndarray]

    def rows(self, name: str, count: int | None = None) -> Float64[np.ndarray, "row number"]:
        """Returns an array of some numbers a row, flattened.

        Raises:
            DataError: it does not exist, holds something else than finite numbers of 32 bits, or
                has another number of rows than `count`.
        """
        if name not in self.arrays:
            raise DataError(f"{self.path} has no {name!r}; it has {', '.join(self.arrays)}")
        values = self.arrays[name]
        if values.dtype.kind not in "fiub" or not values.size or not values.ndim:
            raise DataError(f"{self.path}: {name} holds no numbers; give a row for each step")
        if count not in (None, len(values)):
            raise DataError(
                f"{self.path}: {name} has {len(values)} rows, and not {count} as the other arrays; "
                "give each one a row, the last ones of episodes included"
            )
        rows = values.reshape(len(values), -1).astype(float)
        faulty = np.argwhere(~(np.abs(rows) <= LARGEST))
        if len(faulty):
            row, column = faulty[0].tolist()
            number = f", number {column}" if rows.shape[1] > 1 else ""
            unusable = f"{len(np.unique(faulty[:, 0]))} of {len(rows)} rows cannot be used"
            raise DataError(
                f"{self.path}: {name} is {rows[row, column]} in row {self.place(row)}{number}; "
                f"{unusable}: leave their episodes out, or end them before"
            )
        return rows

    def place(self, row: int) -> int:
        """Returns what a user calls a row: its line in a .csv file, its index in an array."""
        return row + 2 if self.path.endswith(".csv") else row

    def last_rows(self, count: int, episode: str = EPISODE) -> Bool[np.ndarray, " row"]:
        """Returns which of all rows end an episode; `episode` names the column of its number.

        Raises:
            DataError: there is another number of rows, or each of them ends one.
        """
        is_last = np.arange(count) == count - 1
        for name in self.arrays.keys() & {episode, *FLAGS}:
            values = self.rows(name, count)
            ends = np.diff(values, axis=0) if name == episode else values[:-1]
            is_last[:-1] |= (ends != 0).any(1)
        if is_last.all():
            raise DataError(f"{self.path}: each of {count} episodes has one row: no step")
        return is_last


class Recording(NamedTuple):
    """Holds the observations of one episode after the other, flattened, the last ones included."""

    observations: Float32[np.ndarray, "row obs"]
    is_last: Bool[np.ndarray, " row"]


def read_table(path: str) -> Table:
    """Returns what a .csv file with a header holds, or an .npz file.

    Raises:
        DataError: it is not there, or cannot be read.
    """
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{path} is not there; a relative path starts in {Path.cwd()}")
    if file.suffix not in (".npz", ".csv"):
        raise DataError(f"{path} is neither .npz nor .csv; save it as one of them")
    with user_code(lambda reason: f"{path} cannot be read ({reason}); write it again"):
        if file.suffix == ".csv":
            return Table(path, _read_csv(file))
        with np.load(file, allow_pickle=False) as arrays:
            return Table(path, dict(arrays))


def _read_csv(file: Path) -> dict[str, np.ndarray]:
    header, *lines = file.read_text(encoding="utf-8-sig").splitlines()
    for mark in (";", "\t"):
        if mark in header:
            raise DataError(
                f"{mark!r} stands between its columns; write commas, and points in numbers"
            )
    names = [name.strip().strip('"') for name in header.split(",")]
    distinct("header", names)
    rows = []
    for place, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        cells = line.split(",")
        if len(cells) != len(names):
            raise DataError(
                f"row {place} has {len(cells)} columns, the header {len(names)}; write commas "
                "between columns, and points in numbers"
            )
        rows.append([_number(*cell, place) for cell in zip(names, cells, strict=True)])
    columns = np.array(rows).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True))


def _number(column: str, cell: str, row: int) -> float:
    try:
        return float(cell)
    except ValueError:
        raise DataError(f"column {column}, row {row}: {cell.strip()!r} is no number") from None


def read_recording(path: str, columns: tuple[str, ...] | None = None) -> Recording:
    """Returns what a file holds: an .npz file `observations` (row, ...), a .csv file with a header
    one column for each number (`columns`, or all). Both have beside them `episode` (row,), or
    `terminated` and `truncated`, which are 1 in the last row of an episode.

    Raises:
        DataError: names the file, the array or the row, what is wrong with it, and how to mend it.
        PackageMissing: the package minari is not installed.
    """
    table = _read_minari(path) if path.startswith(MINARI) else read_table(path)
    ends = {EPISODE, *FLAGS}
    names = columns or (OBSERVATIONS,)
    if path.endswith(".csv") and not columns:
        names = tuple(name for name in table.arrays if name not in ends) or names
    if not ends & table.arrays.keys():
        raise DataError(
            f"{path} does not tell where episodes end; add {EPISODE}, the number of each row's "
            f"episode, or {' and '.join(FLAGS)}, 1 in the last row of one"
        )
    observations = np.concatenate([table.rows(name) for name in names], 1)
    return Recording(observations.astype(np.float32), table.last_rows(len(observations)))


def _read_minari(path: str) -> Table:
    try:
        minari = import_module("minari")
    except ModuleNotFoundError:
        raise PackageMissing(f"{path} needs minari: pip install minari") from None
    with user_code(lambda reason: f"{path} cannot be read ({reason}); see `minari list local`"):
        episodes = minari.load_dataset(path.removeprefix(MINARI)).iterate_episodes()
        parts = [_rows(episode.observations) for episode in episodes]
        numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return Table(path, {OBSERVATIONS: np.concatenate(parts), EPISODE: numbers})


def _rows(values: Any) -> np.ndarray:
    """Returns a row of numbers for each observation; the parts of a Dict or Tuple side by side."""
    if isinstance(values, Mapping | tuple):
        parts = values.values() if isinstance(values, Mapping) else values
        return np.concatenate([_rows(part) for part in parts], 1)
    array = np.asarray(values)
    return array.reshape(len(array), -1)
