"""A folder of maps becomes a table; a bad map is told and passed over, and what is done is not done
again.
"""

from pathlib import Path

import pytest

from pipeline.commands import grids
from pipeline.runtime.errors import ConfigError
from quatrain.progress import TrainingDiverged
from tests.conftest import ROOT, SMALL

TINY = SMALL["allo"] | {"env": {"fourier": {"scale": 6.0, "count": 5}, "max_episode_steps": 60}}


@pytest.fixture
def maps(tmp_path: Path) -> Path:
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "goal.txt").write_text("S....\n.xx..\n.x..G\n")
    (folder / "ragged.txt").write_text("...\n....\n")
    (folder / "two_parts.txt").write_text("....x...\n....x...\n")
    return folder


def sweep(maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grids, "OUT", str(tmp_path / "out"))
    grids.run_folder(ROOT, maps, "large", TINY)


def test_good_maps_are_in_the_table_and_a_bad_one_is_told(
    maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(ConfigError, match="1 of 3 maps could not be used; the lines above say why"):
        sweep(maps, tmp_path, monkeypatch)
    said = capsys.readouterr()
    table = (tmp_path / "out" / "large" / "table.md").read_text()
    assert "| goal " in table
    assert "| two_parts " in table
    assert "ragged" not in table
    assert "grids: passed over ragged.txt: params.yaml: allo" in said.err
    assert "line 2: 4 cells, the first line has 3" in said.err
    assert (tmp_path / "out" / "large" / "goal" / "plots" / "vectors.png").exists()

    def never(*_: object) -> None:
        raise AssertionError("learned again")

    monkeypatch.setattr(grids, "train", never)
    with pytest.raises(ConfigError):
        sweep(maps, tmp_path, monkeypatch)
    assert "done before" in capsys.readouterr().out


def test_as_many_components_as_states_that_start_pairs(maps: Path):
    (maps / "few.txt").write_text("S.G\n")
    changes = {"network": {"d": 5}}
    assert grids.params_for(ROOT, "large", maps / "few.txt", changes).allo.network.d == 2
    assert grids.params_for(ROOT, "large", maps / "two_parts.txt", changes).allo.network.d == 5


def test_a_map_whose_training_diverges_does_not_end_the_sweep(
    maps: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def diverges(*_: object) -> None:
        raise TrainingDiverged("allo step 3: graph term is not finite")

    monkeypatch.setattr(grids, "run_map", diverges)
    with pytest.raises(ConfigError, match="3 of 3 maps"):
        sweep(maps, tmp_path, monkeypatch)
    assert "passed over goal.txt: allo step 3" in capsys.readouterr().err


def test_a_folder_without_maps_is_refused(tmp_path: Path):
    with pytest.raises(
        ConfigError,
        match=r"holds no map \(\*.txt\); pass a folder of maps: make grids GRIDS=FOLDER",
    ):
        grids.run_folder(ROOT, tmp_path, "large", {})
