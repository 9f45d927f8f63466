"""A saved result comes back as it was, answers and draws; a damaged one is refused."""

from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import quatrain
from quatrain.animation import Animation
from quatrain.api.results import DATASET, FILES, Result
from quatrain.errors import ConfigError, DataError
from quatrain.storage import folders
from quatrain.storage.folders import FolderError
from tests.api.test_fit import assert_equal
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import flip_bit

DEEP: dict[str, Any] = reduce(lambda inner, _: {"env": inner}, range(700), {})


def test_a_result_comes_back_as_it_was(allo: Result, tmp_path: Path):
    folder = allo.save(tmp_path / "runs" / "first")
    files = {path.name for path in folder.iterdir()}
    assert files == {*FILES, DATASET, "scores.json", "manifest.json"}
    restored = quatrain.load(str(folder))
    assert_equal(restored, allo)
    assert restored.params == allo.params
    assert quatrain.evaluate(restored) == allo.scores
    request = allo.example_request()
    for name, answer in allo.predict(request).items():
        np.testing.assert_array_equal(restored.predict(request)[name], answer)
    assert restored.plots().keys() == allo.plots().keys()
    again = restored.save(tmp_path / "second")
    for name in files:
        assert (folder / name).read_bytes() == (again / name).read_bytes()


def test_nested_lists_are_answered_and_what_does_not_fit_is_refused(allo: Result):
    answer = allo.predict({"cells": [[1, 1], [1, 2]]})
    assert answer["eigenvectors"].shape == (2, 3)
    with pytest.raises(ValueError, match=r"cells\[1\] is a list of 1; give whole numbers"):
        allo.predict({"cells": [[1, 1], [1]]})


def test_an_encoder_comes_with_allo_alone(allo: Result, actor_critic: Result):
    assert allo.encoder(range(3)).shape == (3, allo.config.network.d)
    with pytest.raises(ConfigError, match="actor_critic has no encoder; fit allo"):
        _ = actor_critic.encoder


def test_a_result_shows_its_judged_scores(allo: Result):
    assert repr(allo).startswith("<quatrain.Result of allo, seed 0: cosine_mean=")
    table = allo._repr_html_()
    assert table.count("<tr>") == 1 + len(allo.judged_scores) == 4


def test_figures_and_films_are_apart(allo: Result, tmp_path: Path, monkeypatch: Patch):
    frames = np.zeros((2, 3, 5, 3), np.uint8)
    pictures = {"curve": Figure(), "episode": Animation(frames, 50, "How?")}
    monkeypatch.setattr(Result, "_pictures", lambda _: pictures)
    assert allo.plots().keys() == {"curve"}
    (film,) = allo.films().values()
    path = film.save(tmp_path / "films" / "episode.gif")
    assert path.read_bytes().startswith(b"GIF89a")
    assert film._repr_html_().startswith('<img src="data:image/gif;base64,R0lGODlh')
    assert repr(film).startswith("<quatrain.Film of ")


@pytest.mark.parametrize("name", ["scores.json", "state.safetensors"])
def test_a_damaged_file_is_refused(name: str, allo: Result, tmp_path: Path):
    folder = allo.save(tmp_path / "run")
    flip_bit(folder / name)
    with pytest.raises(DataError, match=f"{name}.*; save it again with result.save"):
        quatrain.load(folder)


Change = Callable[[dict[str, Any], dict[str, Any]], Any]
OTHER_FOLDERS: dict[str, Change] = {
    "files that are missing: ['weights.safetensors'], ": lambda c, _: c.pop("weights.safetensors"),
    "by another version: quatrain: allo = [1]: ": lambda c, _: c.update({"config.json": [1]}),
    "quatrain: is nested too deep": lambda c, _: c.update({"config.json": DEEP}),
    "holds no trained model": lambda _, info: info.update(model=["allo"]),
    "was saved by another version: quatrain: allo.": lambda c, _: c["config.json"].pop("train"),
    "the manifest does not tell seed and threads": lambda _, info: info.pop("seed"),
    "version: quatrain: seed = 'x': ": lambda _, info: info.update(seed="x"),
    "scores.json: does not map names to numbers; save": lambda c, _: c.update({"scores.json": 3}),
    "scores.json: does not map names to numbers": lambda c, _: c["scores.json"].update(a="0.5"),
    "history.csv: is no table of steps": lambda c, _: c.update({"history.csv": "step,a\nx,1\n"}),
    "files that are missing: ['dataset.safetensors']": lambda c, _: c.pop(DATASET),
    "other: not a Dataset: arrays missing ['": lambda c, _: c.update({DATASET: {}}),
    "other: not a learner of this config: arrays missing": (
        lambda c, _: c.update({"state.safetensors": {}})
    ),
}


@pytest.mark.parametrize("line", OTHER_FOLDERS)
def test_a_folder_of_another_kind_is_refused(line: str, allo: Result, tmp_path: Path):
    stored = folders.load(allo.save(tmp_path / "run"))
    OTHER_FOLDERS[line](stored.contents, stored.info)
    folders.save(tmp_path / "other", stored.contents, stored.info)
    with pytest.raises(DataError) as error:
        quatrain.load(tmp_path / "other")
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["notes.md", "run.csv", "config.json"])
def test_a_folder_that_holds_something_else_is_refused(allo: Result, tmp_path: Path, name: str):
    (tmp_path / name).write_text("mine")
    with pytest.raises(FolderError, match=rf"{name}: is in the way .* save again"):
        allo.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with pytest.raises(DataError, match=r"manifest\.json: cannot be opened"):
        quatrain.load(tmp_path)
    with pytest.raises(DataError, match="nowhere: no such folder; give one that"):
        quatrain.load(tmp_path / "nowhere")
