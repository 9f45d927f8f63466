"""a file of recorded episodes, or a dataset of minari -> their numbers, and where they end"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from quatrain.envs.host.user_code import user_code
from quatrain.errors import DataError, PackageMissing

MINARI = "minari:"
OBSERVATIONS = "observations"
# Columns that tell where episodes end: the number of a row's episode, or flags of their last rows.
EPISODE = "episode"
FLAGS = ("terminated", "truncated")
LARGEST = float(np.finfo(np.float32).max)


class Table(NamedTuple):
    """Holds the columns of a .csv file, or the arrays of an .npz file."""

    path: str
    arrays: Mapping[str, np.ndarray]

    def rows(self, name: str) -> Float64[np.ndarray, "row number"]:
        """Returns an array of some numbers a row, flattened.

        Raises:
            DataError: it does not exist, or holds something else than finite numbers of 32 bits.
        """
        if name not in self.arrays:
            raise DataError(f"{self.path} has no {name!r}; it has {', '.join(self.arrays)}")
        values = self.arrays[name]
        if values.dtype.kind not in "fiub" or not values.size or not values.ndim:
            raise DataError(f"{self.path}: {name} holds no numbers; give a row for each step")
        rows = values.reshape(len(values), -1).astype(float)
        faulty = np.argwhere(~(np.abs(rows) <= LARGEST))
        if len(faulty):
            row, column = faulty[0].tolist()
            raise DataError(
                f"{self.path}: {name} is {rows[row, column]} in row {self.place(row)}, number "
                f"{column}; leave that episode out, or end it before"
            )
        return rows

    def place(self, row: int) -> int:
        """Returns what a user calls a row: its line in a .csv file, its index in an array."""
        return row + 2 if self.path.endswith(".csv") else row

    def last_rows(self, count: int, episode: str = EPISODE) -> Bool[np.ndarray, " row"]:
        """Returns which of all rows end an episode; `episode` names the column of its number.

        Raises:
            DataError: there is another number of rows.
        """
        is_last = np.arange(count) == count - 1
        for name in self.arrays.keys() & {episode, *FLAGS}:
            values = self.rows(name)
            if values.shape != (count, 1):
                raise DataError(
                    f"{self.path}: {name} has the shape {self.arrays[name].shape}, not ({count},); "
                    "give one number a row"
                )
            ends = np.diff(values, axis=0) if name == episode else values[:-1]
            is_last[:-1] |= ends[:, 0] != 0
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
    names = [name.strip().strip('"') for name in header.split(",")]
    rows = []
    for place, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        try:
            rows.append([float(cell) for cell in line.split(",")])
        except ValueError as error:
            raise DataError(f"row {place}: {error}") from None
        if len(rows[-1]) != len(names):
            raise DataError(f"row {place} has {len(rows[-1])} columns, the header {len(names)}")
    columns = np.array(rows).reshape(-1, len(names)).T
    return dict(zip(names, columns, strict=True))


def read_recording(path: str, columns: tuple[str, ...] | None = None) -> Recording:
    """Returns what a file holds: an .npz file `observations` (row, ...), a .csv file with a header
    one column for each number (`columns`, or all). Both have beside them `episode` (row,), or
    `terminated` and `truncated`, which are 1 in the last row of an episode.

    Raises:
        DataError: names the file, the array or the row, what is wrong with it, and how to mend it.
        PackageMissing: the package minari is not installed.
    """
    if path.startswith(MINARI):
        return _read_minari(path)
    table = read_table(path)
    ends = (EPISODE, *FLAGS)
    names = list(columns or ()) if path.endswith(".csv") else [OBSERVATIONS]
    names = names or [name for name in table.arrays if name not in ends] or [OBSERVATIONS]
    if not set(ends) & table.arrays.keys():
        raise DataError(
            f"{path} does not tell where episodes end; add {EPISODE}, the number of each row's "
            f"episode, or {' and '.join(FLAGS)}, 1 in the last row of one"
        )
    observations = np.concatenate([table.rows(name) for name in names], 1)
    return _checked(path, observations, table.last_rows(len(observations)))


def _read_minari(path: str) -> Recording:
    try:
        minari = import_module("minari")
    except ModuleNotFoundError:
        raise PackageMissing(f"{path} needs minari: pip install minari") from None
    with user_code(lambda reason: f"{path} cannot be read ({reason}); see `minari list local`"):
        episodes = minari.load_dataset(path.removeprefix(MINARI)).iterate_episodes()
        parts = [_rows(episode.observations) for episode in episodes]
        table = Table(path, {OBSERVATIONS: np.concatenate(parts)})
    is_last = [np.arange(len(part)) == len(part) - 1 for part in parts]
    return _checked(path, table.rows(OBSERVATIONS), np.concatenate(is_last))


def _rows(values: Any) -> np.ndarray:
    """Returns a row of numbers for each observation; the parts of a Dict or Tuple side by side."""
    if isinstance(values, Mapping | tuple):
        parts = values.values() if isinstance(values, Mapping) else values
        return np.concatenate([_rows(part) for part in parts], 1)
    array = np.asarray(values)
    return array.reshape(len(array), -1)


def _checked(
    path: str, observations: Float64[np.ndarray, "row obs"], is_last: Bool[np.ndarray, " row"]
) -> Recording:
    if is_last.all():
        raise DataError(f"{path}: each of {len(is_last)} episodes has one observation: no step")
    return Recording(observations.astype(np.float32), is_last)
