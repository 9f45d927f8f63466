"""Tests that a training becomes one registered version, and a baseline the champion."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import champions, registry, store
from pipeline.tracking.champions import CHAMPION, Alias, set_aliases
from pipeline.tracking.registry import CANDIDATE, RUN_KEY_TAG
from tests.pipeline.fixture_types import Patch
from tests.pipeline.scored_workspace import make_workspace
from tests.pipeline.small_project import NOBODY

NAME = "quatrain-allo"
EXPERIMENT = "1"
EXPECTED = [Alias(NAME, "k1")]
IS_SET = ["quatrain-allo@champion: version 1, run k1"]
CARD = "## What it is\n\nk1\n\n## Scores\n\nnone\n\n## Limits\n\nmany"


@pytest.fixture
def call(uri: str, tmp_path: Path) -> Any:
    call = store.open_client(uri).call
    assert call("create_experiment", "quatrain", f"{tmp_path}/artifacts") == EXPERIMENT
    return call


@pytest.fixture
def train(call: registry.Call, tmp_path: Path) -> Callable[..., str]:
    """Registers the model of a run, and returns the run's ID."""
    (tmp_path / "model" / "code").mkdir(parents=True)
    (tmp_path / "model" / "code" / "answer.py").write_text("ANSWER = 42\n")

    def register(key: str, time: int = 0, run_id: str = "", by: registry.Call = call) -> str:
        run_id = run_id or call("create_run", EXPERIMENT, tags={RUN_KEY_TAG: key}).info.run_id
        line = {"name": NAME, "time": time, "card": CARD.replace("k1", key)}
        registry.register(by, run_id, tmp_path / "model", line)
        return run_id

    return register


def versions_in(call: registry.Call) -> list[Any]:
    versions = call("search_model_versions", f"name = '{NAME}'")
    return sorted(versions, key=lambda version: int(version.version))


def version_of(call: registry.Call, alias: str) -> str | None:
    return registry.version_with_alias(call, NAME, alias)


# Versions.


def test_a_model_is_registered_once_with_its_files(call: registry.Call, train: Callable[..., str]):
    run_id = train("k1")
    train("k1", run_id=run_id)
    (version,) = versions_in(call)
    assert (version.run_id, version.tags[RUN_KEY_TAG]) == (run_id, "k1")
    assert (Path(version.source) / "code" / "answer.py").read_text() == "ANSWER = 42\n"
    (logged,) = call("search_logged_models", [EXPERIMENT])
    assert (logged.status.value, logged.source_run_id) == ("READY", run_id)
    outputs = call("get_run", run_id).outputs.model_outputs
    assert [output.model_id for output in outputs] == [logged.model_id]


@pytest.mark.parametrize(
    "lost",
    [
        "create_logged_model",
        "log_model_artifacts",
        "create_registered_model",
        "create_model_version",
        "set_registered_model_alias",
    ],
)
def test_a_call_whose_reply_is_lost_is_repeated_without_duplicates(
    call: registry.Call, train: Callable[..., str], lost: str
):
    def failing(method: str, *arguments: Any, **named: Any) -> Any:
        answer = call(method, *arguments, **named)
        if method == lost:
            raise ConnectionError("the answer was lost")
        return answer

    run_id = call("create_run", EXPERIMENT, tags={RUN_KEY_TAG: "k1"}).info.run_id
    with pytest.raises(ConnectionError):
        train("k1", run_id=run_id, by=failing)
    train("k1", run_id=run_id)
    assert len(versions_in(call)) == len(call("search_logged_models", [EXPERIMENT])) == 1
    assert version_of(call, CANDIDATE) == "1"


def test_the_candidate_is_the_model_trained_last_not_the_model_delivered_last(
    call: registry.Call, train: Callable[..., str]
):
    train("k2", time=2000)
    train("k1", time=1000)
    assert [version.tags[RUN_KEY_TAG] for version in versions_in(call)] == ["k2", "k1"]
    assert version_of(call, CANDIDATE) == "1"
    assert call("get_registered_model", NAME).description == CARD.replace("k1", "k2")


def test_the_scores_go_into_the_card_of_the_version_and_of_the_model_if_it_is_its_candidate(
    call: registry.Call, train: Callable[..., str]
):
    run_id = train("k1", time=1)
    scored = CARD.replace("none", "all hold")
    for _ in range(2):
        registry.describe(call, run_id, NAME, "## Scores\n\nall hold")
        assert [version.description for version in versions_in(call)] == [scored]
        assert call("get_registered_model", NAME).description == scored
    train("k2", time=2)
    registry.describe(call, run_id, NAME, "## Scores\n\nnone")
    assert versions_in(call)[0].description == CARD
    assert call("get_registered_model", NAME).description == CARD.replace("k1", "k2")
    other = call("create_run", EXPERIMENT).info.run_id
    registry.describe(call, other, NAME, "## Scores\n\nnone")  # a run without a version


# Champions.


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return tmp_path


def test_the_champion_is_the_version_of_the_baselines_run_and_moves_with_it(
    root: Path, call: registry.Call, train: Callable[..., str], monkeypatch: Patch
):
    train("k1")
    train("k2")
    assert set_aliases(root, EXPECTED) == IS_SET
    with monkeypatch.context() as patch:
        patch.setattr(champions, "open_client", lambda _: pytest.fail("asked"))
        assert set_aliases(root, EXPECTED) == []
    moved = ["quatrain-allo@champion: version 2, run k2"]
    assert set_aliases(root, [Alias(NAME, "k2")]) == moved
    assert (version_of(call, CHAMPION), version_of(call, CANDIDATE)) == ("2", "2")
    call("delete_registered_model_alias", NAME, CHAMPION)
    assert set_aliases(root, [Alias(NAME, "k2")]) == []
    assert set_aliases(root, [Alias(NAME, "k2")], refresh=True) == moved
    assert set_aliases(root, [Alias(NAME, "k2")], refresh=True) == []


def test_a_run_without_a_version_is_said_and_its_fallback_is_the_first_champion(
    root: Path, train: Callable[..., str]
):
    absent = "quatrain-allo@champion: run k9 has no version in this store"
    for alias in (Alias(NAME, "k9"), Alias(NAME, "k9", fallback="k1")):
        for _ in range(2):
            assert set_aliases(root, [alias]) == [absent]
    train("k1")
    train("k2")
    assert set_aliases(root, [Alias(NAME, "k9", fallback="k1")]) == IS_SET
    other = [Alias(NAME, "k9", fallback="k2")]
    assert set_aliases(root, other) == []
    assert set_aliases(root, other, refresh=True) == [f"{absent}; version 1 stays"]


@pytest.mark.parametrize("note", [b"", b"[]", b'{"uri": 3}', b'{"aliases": {}}'])
def test_a_damaged_cache_is_ignored_and_one_of_another_store(
    root: Path, train: Callable[..., str], note: bytes, monkeypatch: Patch
):
    train("k1")
    (root / ".state").mkdir()
    (root / ".state" / "aliases.json").write_bytes(note)
    assert set_aliases(root, EXPECTED) == IS_SET
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    with pytest.raises(store.Unreachable, match="no server answers"):
        set_aliases(root, EXPECTED)


def test_a_baseline_names_the_run_of_its_champion(tmp_path: Path):
    assert champions.expected_aliases(tmp_path, tmp_path, "default", ["allo"]) == []
    workspace = make_workspace(tmp_path)["allo"]
    champion = Alias(NAME, "0" * 64, fallback="a" * 64)
    assert champions.expected_aliases(tmp_path, tmp_path, "default", ["allo"]) == [champion]
    # A run that broke its baseline is no fallback, nor a model trained after its evaluation.
    for change in (lambda: workspace.score(cosine_mean=0.5), lambda: workspace.train("b" * 64)):
        change()
        (expected,) = champions.expected_aliases(tmp_path, tmp_path, "default", ["allo"])
        assert expected == champion._replace(fallback=None)
        workspace.score()
    workspace.set_baseline("paper")  # the scores are of another preset
    (paper,) = champions.expected_aliases(tmp_path, tmp_path, "paper", ["allo", "iqn"])
    assert paper == champion._replace(model="quatrain-allo-paper", fallback=None)
    assert champions.expected_aliases(tmp_path, tmp_path, "default", ["allo"]) == []
