"""a file of recorded episodes, or a dataset of minari -> their observations, and where they end"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32

from quatrain.envs.host.user_code import user_code
from quatrain.errors import DataError, PackageMissing

MINARI = "minari:"
OBSERVATIONS = "observations"
# Columns that tell where episodes end: the number of a row's episode, or flags of their last rows.
EPISODE = "episode"
FLAGS = ("terminated", "truncated")
LARGEST = float(np.finfo(np.float32).max)


class Recording(NamedTuple):
    """Holds the observations of one episode after the other, flattened, the last ones included."""

    observations: Float32[np.ndarray, "row obs"]
    is_last: Bool[np.ndarray, " row"]


def read_recording(path: str, columns: tuple[str, ...] | None = None) -> Recording:
    """Returns what a file holds: an .npz file `observations` (row, ...), a .csv file with a header
    one column for each number (`columns`, or all). Both have beside them `episode` (row,), or
    `terminated` and `truncated`, which are 1 in the last row of an episode.

    Raises:
        DataError: names the file, the array or the row, what is wrong with it, and how to mend it.
        PackageMissing: the package minari is not installed.
    """
    if path.startswith(MINARI):
        return _read_minari(path.removeprefix(MINARI))
    file = Path(path)
    name = file.name
    if not file.is_file():
        raise DataError(f"{path}: is not there; a relative path starts in {Path.cwd()}")
    if file.suffix not in (".npz", ".csv"):
        raise DataError(f"{name}: is neither .npz nor .csv; save it as one of them")
    with user_code(lambda reason: f"{name}: cannot be read ({reason}); write it again"):
        table = _read_npz(file) if file.suffix == ".npz" else _read_csv(file)
    if file.suffix == ".csv":
        names = columns or [each for each in table if each not in (EPISODE, *FLAGS)]
        absent = [each for each in names if each not in table]
        if absent or not names:
            raise DataError(f"{name}: has no column {absent}; it has {', '.join(table)}")
        table[OBSERVATIONS] = np.stack([table[each] for each in names], 1)
    elif OBSERVATIONS not in table:
        raise DataError(
            f"{name}: has no array {OBSERVATIONS}; numpy.savez it with {OBSERVATIONS} (row, ...) "
            f"and {EPISODE} (row,), the number of each row's episode"
        )
    return _checked(name, _rows(table[OBSERVATIONS]), _last_rows(name, table))


def _read_npz(file: Path) -> dict[str, np.ndarray]:
    with np.load(file, allow_pickle=False) as arrays:
        return dict(arrays)


def _read_csv(file: Path) -> dict[str, np.ndarray]:
    with file.open(encoding="utf-8-sig") as lines:
        header = [each.strip() for each in next(lines).split(",")]
        numbers = np.loadtxt(lines, delimiter=",", ndmin=2)
    return dict(zip(header, numbers.T, strict=True))


def _last_rows(name: str, table: Mapping[str, np.ndarray]) -> Bool[np.ndarray, " row"]:
    count = len(table[OBSERVATIONS])
    flags = {each: table[each] for each in (EPISODE, *FLAGS) if each in table}
    if not flags:
        raise DataError(
            f"{name}: does not tell where episodes end; add {EPISODE}, the number of each row's "
            f"episode, or {' and '.join(FLAGS)}, 1 in the last row of one"
        )
    is_last = np.arange(count) == count - 1
    for each, values in flags.items():
        if values.shape != (count,):
            raise DataError(
                f"{name}: {each} has the shape {values.shape}, not ({count},) as {OBSERVATIONS} "
                "has rows; give one number a row"
            )
        is_last[:-1] |= values[1:] != values[:-1] if each == EPISODE else values[:-1] != 0
    return is_last


def _read_minari(dataset: str) -> Recording:
    try:
        minari = import_module("minari")
    except ModuleNotFoundError:
        raise PackageMissing(f"minari:{dataset} needs minari: pip install minari") from None
    with user_code(
        lambda reason: f"minari:{dataset}: cannot be read ({reason}); see `minari list local`"
    ):
        episodes = minari.load_dataset(dataset).iterate_episodes()
        parts = [_rows(episode.observations) for episode in episodes]
    is_last = [np.arange(len(part)) == len(part) - 1 for part in parts]
    return _checked(f"minari:{dataset}", np.concatenate(parts), np.concatenate(is_last))


def _rows(values: Any) -> np.ndarray:
    """Returns a row of numbers for each observation; the parts of a Dict or Tuple side by side."""
    if isinstance(values, Mapping | tuple):
        parts = values.values() if isinstance(values, Mapping) else values
        return np.concatenate([_rows(part) for part in parts], 1)
    array = np.asarray(values)
    return array.reshape(len(array), -1) if array.ndim and len(array) else array.reshape(0, 0)


def _checked(name: str, rows: np.ndarray, is_last: Bool[np.ndarray, " row"]) -> Recording:
    if rows.dtype.kind not in "fiub" or not rows.size:
        raise DataError(f"{name}: {OBSERVATIONS} holds no numbers; give a row for each step")
    faulty = np.argwhere(~(np.abs(rows.astype(float)) <= LARGEST))
    if len(faulty):
        row, column = faulty[0].tolist()
        raise DataError(
            f"{name}: {OBSERVATIONS} row {row}, number {column}, is {rows[row, column]}; "
            "leave that episode out, or end it before"
        )
    if is_last.all():
        raise DataError(f"{name}: each of {len(rows)} episodes has one observation: no step to use")
    return Recording(rows.astype(np.float32), is_last)
