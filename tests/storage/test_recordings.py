"""Files of recorded episodes: what is read, and the one line about each fault."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from quatrain.errors import DataError, PackageMissing
from quatrain.storage.recordings import read_recording
from tests.pipeline.fixture_types import Patch

ROWS = np.arange(10, dtype=float).reshape(5, 2)
GOOD = {"observations": ROWS, "episode": np.array([3, 3, 7, 7, 7])}
LAST = [False, True, False, False, True]


def saved(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "walks.npz", **arrays)
    return str(folder / "walks.npz")


@pytest.mark.parametrize("ends", ["episode", "terminated", "truncated"])
def test_an_archive_tells_where_episodes_end(tmp_path: Path, ends: str):
    flags = GOOD["episode"] if ends == "episode" else np.array([0, 1, 0, 0, 0])
    recording = read_recording(saved(tmp_path, observations=ROWS[..., None], **{ends: flags}))
    np.testing.assert_array_equal(recording.observations, ROWS)
    assert recording.is_last.tolist() == LAST


def test_a_table_has_named_columns(tmp_path: Path):
    file = tmp_path / "walks.csv"
    file.write_text("t,x,episode\n0,1,0\n1,2,0\n0,3,1\n1,4,1\n")
    recording = read_recording(str(file), ("x",))
    assert recording.observations.tolist() == [[1], [2], [3], [4]]
    assert recording.is_last.tolist() == [False, True, False, True]
    assert read_recording(str(file)).observations.shape == (4, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": None}, "has no 'observations'; it has episode"),
        ({"episode": None}, "does not tell where episodes end; add episode"),
        (
            {"episode": np.zeros(4)},
            "episode has 4 rows, and not 5 as the other arrays; give each one a row",
        ),
        ({"episode": np.arange(5)}, "each of 5 episodes has one row: no step"),
        (
            {"observations": np.full((5, 2), np.nan)},
            "observations is nan in row 0, number 0; 5 of 5 rows",
        ),
        ({"observations": np.full((5, 2), "a")}, "holds no numbers"),
    ],
)
def test_a_fault_of_an_archive_is_one_line(tmp_path: Path, change: dict[str, Any], message: str):
    arrays = {name: array for name, array in (GOOD | change).items() if array is not None}
    with pytest.raises(DataError, match=message):
        read_recording(saved(tmp_path, **arrays))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("walks.csv", "x,episode\n1,0\n2,0\n", "has no 'y'; it has x, episode"),
        (
            "walks.csv",
            "y,episode\n1,0\nnan,0\n",
            "y is nan in row 3; 1 of 2 rows cannot be used: leave",
        ),
        (
            "walks.csv",
            "y,episode\n1,0\nb,0\n",
            r"cannot be read \(column y, row 3: 'b' is no number\)",
        ),
        ("walks.csv", "y,episode\n1,0\n1\n", "row 3 has 1 columns, the header 2"),
        ("walks.csv", "y,episode\n0,5,0\n", "row 2 has 3 columns, .* and points in numbers"),
        ("walks.csv", "y;episode\n0,5;0\n", "';' stands between its columns; write commas, and"),
        ("walks.csv", "y,y,episode\n1,2,0\n", "header: 'y' is there twice; name each once"),
        ("walks.csv", "y,episode\n", "y holds no numbers; give a row for each step"),
        ("walks.txt", "1", r"is neither \.npz nor \.csv"),
        ("walks.npz", "1", "cannot be read"),
    ],
)
def test_a_fault_of_a_file_is_one_line(tmp_path: Path, name: str, text: str, message: str):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_recording(str(tmp_path / name), ("y",))
    with pytest.raises(DataError, match="is not there"):
        read_recording(str(tmp_path / "absent.npz"))


def test_a_dataset_of_minari_is_read_by_its_package(monkeypatch: Patch):
    """The package itself is no requirement."""
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(PackageMissing, match="pip install minari"):
        read_recording("minari:walks-v0")
    parts = {"x": np.zeros((3, 2)), "y": np.ones((3, 1))}
    episodes = [SimpleNamespace(observations=parts), SimpleNamespace(observations=parts)]
    dataset = SimpleNamespace(iterate_episodes=lambda: episodes)
    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=lambda _: dataset))
    recording = read_recording("minari:walks-v0")
    assert recording.observations[0].tolist() == [0, 0, 1]
    assert recording.is_last.tolist() == [False, False, True] * 2
