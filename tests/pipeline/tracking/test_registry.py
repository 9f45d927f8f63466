"""Tests that a training becomes one registered version, and a baseline the champion."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import champions, registry, store
from pipeline.tracking.champions import CHAMPION, champion_key, set_champions
from pipeline.tracking.records import Record
from pipeline.tracking.registry import CANDIDATE, RUN_KEY_TAG
from tests.pipeline.fixture_types import Patch
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_project import NOBODY

NAME = "quatrain-allo"
EXPERIMENT = "1"
IS_SET = ["quatrain-allo@champion: version 1, run k1"]


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
        record = Record(1, "model", NAME, time, f"card of {key}", None, False)
        registry.register(by, run_id, tmp_path / "model", record)
        return run_id

    return register


def version_of(call: registry.Call, alias: str) -> str | None:
    return registry.version_with_alias(call, NAME, alias)


# Versions.


def test_a_model_is_registered_once_with_its_files(call: registry.Call, train: Callable[..., str]):
    run_id = train("k1")
    train("k1", run_id=run_id)
    (version,) = registry.versions_of(call, NAME)
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
    assert len(registry.versions_of(call, NAME)) == 1
    assert len(call("search_logged_models", [EXPERIMENT])) == 1
    assert version_of(call, CANDIDATE) == "1"


def test_the_candidate_is_the_model_trained_last_not_the_model_delivered_last(
    call: registry.Call, train: Callable[..., str]
):
    train("k2", time=2000)
    train("k1", time=1000)
    assert [each.tags[RUN_KEY_TAG] for each in registry.versions_of(call, NAME)] == ["k1", "k2"]
    assert version_of(call, CANDIDATE) == "1"
    assert call("get_registered_model", NAME).description == "card of k2"


def test_a_card_is_that_of_its_version_and_of_the_model_if_it_is_the_candidate(
    call: registry.Call, train: Callable[..., str]
):
    run_id = train("k1", time=1)
    registry.describe(call, run_id, NAME, "scored")
    assert call("get_registered_model", NAME).description == "scored"
    train("k2", time=2)
    registry.describe(call, run_id, NAME, "scored again")
    cards = [version.description for version in registry.versions_of(call, NAME)]
    assert cards == ["card of k2", "scored again"]
    assert call("get_registered_model", NAME).description == "card of k2"
    registry.describe(call, call("create_run", EXPERIMENT).info.run_id, NAME, "without a version")


# Champions.


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return tmp_path


@pytest.fixture
def ask(root: Path, monkeypatch: Patch) -> Callable[..., list[str]]:
    """Sets the champion of one model, whose candidates are runs with these keys."""

    def ask(*keys: str, again: bool = False) -> list[str]:
        monkeypatch.setattr(champions, "champions", lambda *_: {NAME: [*keys]})
        return set_champions(root, root, "default", again)

    return ask


def test_the_champion_is_the_version_of_the_baselines_run_and_moves_with_it(
    ask: Callable[..., list[str]],
    call: registry.Call,
    train: Callable[..., str],
    monkeypatch: Patch,
):
    train("k1")
    train("k2")
    assert ask("k1") == IS_SET
    with monkeypatch.context() as patch:
        patch.setattr(champions, "open_client", lambda _: pytest.fail("asked"))
        assert ask("k1") == []
    moved = ["quatrain-allo@champion: version 2, run k2"]
    assert ask("k2") == moved
    assert (version_of(call, CHAMPION), version_of(call, CANDIDATE)) == ("2", "2")
    call("delete_registered_model_alias", NAME, CHAMPION)
    assert (ask("k2"), ask("k2", again=True), ask("k2", again=True)) == ([], moved, [])


def test_a_run_without_a_version_is_said_and_the_learner_here_is_the_first_champion(
    ask: Callable[..., list[str]], train: Callable[..., str]
):
    absent = "quatrain-allo@champion: run k9 has no version in this store"
    assert ask("k9") == ask("k9", "k1") == [absent]
    train("k1")
    train("k2")
    assert ask("k9", "k1", again=True) == IS_SET
    assert ask("k9", "k2") == [f"{absent}; version 1 stays"]


def test_models_that_were_never_trained_here_share_a_line(
    root: Path, train: Callable[..., str], monkeypatch: Patch
):
    train("k1")
    keys = {NAME: ["k1"], "quatrain-iqn": ["k8"], "quatrain-actor_critic": ["k9"]}
    monkeypatch.setattr(champions, "champions", lambda *_: keys)
    absent = "quatrain-iqn, quatrain-actor_critic: the runs of their baselines have no version in"
    assert set_champions(root, root, "default") == [*IS_SET, f"{absent} this store"]


def test_a_damaged_memo_is_ignored_and_one_of_another_store(
    ask: Callable[..., list[str]], root: Path, train: Callable[..., str], monkeypatch: Patch
):
    train("k1")
    (root / ".state").mkdir()
    (root / ".state" / champions.MEMO).write_bytes(b"\xff")
    assert ask("k1") == IS_SET
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    with pytest.raises(store.Unreachable, match="no server answers"):
        ask("k1")


def test_the_key_of_the_champion_is_the_store_s_or_else_the_baseline_s(
    ask: Callable[..., list[str]],
    root: Path,
    scored: Path,
    train: Callable[..., str],
    monkeypatch: Patch,
):
    key = lambda: champion_key(root, "allo", "default")  # noqa: E731
    assert key() == ""
    shutil.copytree(scored, root, dirs_exist_ok=True)
    assert key() == "0" * 64
    train("k1")
    ask("k1")
    assert key() == "k1"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///none.db")
    assert key() == "0" * 64


def test_a_baseline_names_the_run_of_its_champion(space: Workspace, tmp_path: Path):
    assert champions.champions(tmp_path / "none", tmp_path / "none", "default") == {}
    of_baseline, here = "0" * 64, "a" * 64
    keys = lambda preset="default": champions.champions(tmp_path, tmp_path, preset)  # noqa: E731
    assert keys()[NAME] == [of_baseline, here]
    # A run that broke its baseline is none, nor a model trained after its evaluation.
    for change in (lambda: space.score(cosine_mean=0.5), lambda: space.train("b" * 64)):
        change()
        assert keys()[NAME] == [of_baseline]
        space.score()
    content = space.baseline()
    content["presets"]["paper"] = content["presets"]["default"]
    space.edit_baseline(content)  # the scores are not those of paper
    assert keys("paper") == {"quatrain-allo-paper": [of_baseline]}
    space.edit_baseline("{")
    assert NAME not in keys()
    assert "quatrain-iqn" in keys()
