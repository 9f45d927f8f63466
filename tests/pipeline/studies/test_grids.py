"""A folder of maps becomes a table; a bad map is told and passed over, and what is done is not done
again.
"""

import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.studies import grids
from pipeline.studies.grids import Request
from quatrain.errors import ConfigError
from quatrain.progress import TrainingDiverged
from tests.conftest import ROOT, SMALL
from tests.pipeline.fixture_types import Capture, Patch

TINY = SMALL["allo"] | {"env": {"fourier": {"scale": 6.0, "count": 5}, "max_episode_steps": 60}}
TINY |= {"seeds": 2}


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setattr(grids, "OUT", str(tmp_path / "out"))
    folder = tmp_path / "maps"
    folder.mkdir()
    (folder / "goal.txt").write_text("S....\n.xx..\n.x..G\n")
    (folder / "mirrored.txt").write_text("....S\n..xx.\nG..x.\n")
    (folder / "ragged.txt").write_text("...\n....\n")
    return folder


def run(folder: Path) -> None:
    grids.run_maps(ROOT, Request(folder, "large", TINY, folder.with_name("results.json")))


@pytest.mark.full
def test_good_maps_are_in_the_table_a_bad_one_is_told(
    maps: Path, monkeypatch: Patch, capsys: Capture
):
    why = "1 of 3 maps could not be used; the lines above say why"
    with pytest.raises(ConfigError, match=why):
        run(maps)
    said = capsys.readouterr().err
    assert "grids: passed over ragged.txt: params.yaml: allo" in said
    assert "line 2: 4 cells, the first line has 3" in said
    out = maps.with_name("out") / "large"
    table = (out / "table.md").read_text()
    assert "| goal " in table
    assert "| mirrored " in table
    assert "ragged" not in table
    assert (out / "goal" / "plots" / "vectors.png").exists()

    monkeypatch.setattr(grids, "train_and_score", lambda *_: pytest.fail("learned again"))
    with pytest.raises(ConfigError):
        run(maps)
    assert capsys.readouterr().out.count("| goal ") == 1
    maps_of = json.loads(maps.with_name("results.json").read_text())["maps"]["large"]
    assert set(maps_of) == {"goal", "mirrored"}
    assert set(maps_of["goal"]) == {"0", "10"}
    scores = [each["scores"]["cosine_mean"] for each in maps_of["goal"].values()]
    assert scores[0] != scores[1]


def test_as_many_components_as_states_that_start_pairs(maps: Path):
    (maps / "few.txt").write_text("S.G\n")
    changes = {"network": {"d": 5}}
    assert grids.params_for(ROOT, "large", maps / "few.txt", changes).allo.network.d == 2
    assert grids.params_for(ROOT, "large", maps / "goal.txt", changes).allo.network.d == 5


def test_the_catalogue_is_a_folder_of_maps_too(monkeypatch: Patch):
    compared: list[Request] = []
    monkeypatch.setattr(grids, "compare", lambda _, request: compared.append(request))
    monkeypatch.chdir(ROOT)
    assert (
        main(["grids", "catalogue"]) == main(["grids", "maps", "--seeds", "2", "--steps", "9"]) == 0
    )
    assert [request.folder for request in compared] == [None, Path("maps")]
    assert [request.changes for request in compared] == [{}, {"seeds": 2, "train": {"steps": 9}}]
    layouts = grids.layouts_of(None)
    assert {"room4", "maze9", "room64"} <= set(layouts)
    assert grids.params_for(ROOT, "large", layouts["maze9"], TINY).allo.env.map.name == "maze9"


def test_a_divergence_does_not_end_the_sweep(maps: Path, monkeypatch: Patch, capsys: Capture):
    def diverges(*_: object) -> None:
        raise TrainingDiverged("allo step 3: graph term is not finite")

    monkeypatch.setattr(grids, "run_map", diverges)
    with pytest.raises(ConfigError, match="3 of 3 maps"):
        run(maps)
    assert "passed over goal.txt: allo step 3" in capsys.readouterr().err


def test_a_folder_without_maps_is_refused(tmp_path: Path):
    why = r"holds no map \(\*.txt\); pass a folder of maps: make grids GRIDS=FOLDER"
    with pytest.raises(ConfigError, match=why):
        run(tmp_path)
