"""Tests that a training becomes one registered version, and a baseline the champion."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.tracking import champions, registry, store
from pipeline.tracking.champions import (
    BY,
    CHAMPION,
    LEFT,
    SINCE,
    UNTIL,
    WHY,
    Alias,
    champion_key,
    set_champions,
)
from pipeline.tracking.records import Record
from pipeline.tracking.registry import CANDIDATE, RUN_KEY_TAG
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.scored_workspace import PROVENANCE, SCORES, Workspace
from tests.pipeline.small_project import NOBODY

NAME = "quatrain-allo"
EXPERIMENT = "1"
IS_SET = [Alias("quatrain-allo@champion: version 1, run k1")]
KEYS = {"allo": "k1", "iqn": "k8", "actor_critic": "k9"}


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
def ask(root: Path, monkeypatch: Patch) -> Callable[..., list[Alias]]:
    """Sets the champion of one model with a baseline; versions with these keys `hold` it."""

    def ask(key: str, *hold: str, again: bool = False) -> list[Alias]:
        baseline = {"run_key": key, "by": "ann", "why": f"why of {key}"}
        monkeypatch.setattr(champions, "provenances", lambda *_: {"allo": baseline})
        holding = lambda *_: lambda version: version.tags[RUN_KEY_TAG] in hold  # noqa: E731
        monkeypatch.setattr(champions, "_holding", holding)
        return set_champions(root, root, "default", again)

    return ask


def test_the_champion_is_the_version_of_the_baselines_run_and_moves_with_it(
    ask: Callable[..., list[Alias]],
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
    moved = [Alias("quatrain-allo@champion: version 2, run k2, in place of version 1")]
    assert ask("k2") == moved
    assert (version_of(call, CHAMPION), version_of(call, CANDIDATE)) == ("2", "2")
    tags = {int(each.version): each.tags for each in registry.versions_of(call, NAME)}
    assert (tags[2][BY], tags[2][WHY], UNTIL in tags[2]) == ("ann", "why of k2", False)
    assert tags[1][SINCE] <= tags[1][UNTIL] == tags[2][SINCE]
    call("delete_registered_model_alias", NAME, CHAMPION)
    is_set = [Alias("quatrain-allo@champion: version 2, run k2")]
    assert (ask("k2"), ask("k2", again=True), ask("k2", again=True)) == ([], is_set, [])


def test_the_first_champion_of_a_store_is_the_newest_that_holds_the_baseline(
    ask: Callable[..., list[Alias]], train: Callable[..., str]
):
    assert ask("k9") == [Alias("quatrain-allo: no version in this store")]
    train("k1")
    absent = "its baseline's run k9 has no version in this store"
    none = f"quatrain-allo@champion: none: {absent}, and no other version holds the baseline"
    assert ask("k9", again=True) == ask("k9") == [Alias(none, is_set=False)]
    train("k2")
    assert ask("k9", "k1") == IS_SET
    stays = f"quatrain-allo@champion: version 1 stays, whose scores hold the baseline; {absent}"
    assert ask("k9", "k1", "k2", again=True) == [Alias(stays)]


def test_a_champion_that_breaks_the_baseline_is_no_answer(
    ask: Callable[..., list[Alias]], call: registry.Call, train: Callable[..., str]
):
    train("k1")
    train("k2")
    ask("k1")
    (alias,) = ask("k9", "k2")
    assert alias.text.startswith("quatrain-allo@champion: version 1 breaks the baseline, and stays")
    assert not alias.is_set
    assert version_of(call, CHAMPION) == "1"


def test_models_that_were_never_trained_here_share_a_line(
    root: Path, train: Callable[..., str], monkeypatch: Patch
):
    train("k1")
    baselines = {model: {"run_key": key} for model, key in KEYS.items()}
    monkeypatch.setattr(champions, "provenances", lambda *_: baselines)
    absent = Alias("quatrain-iqn, quatrain-actor_critic: no version in this store")
    assert set_champions(root, root, "default") == [*IS_SET, absent]


def test_a_damaged_memo_is_ignored_and_one_of_another_store(
    ask: Callable[..., list[Alias]], root: Path, train: Callable[..., str], monkeypatch: Patch
):
    train("k1")
    (root / ".state").mkdir()
    (root / ".state" / champions.MEMO).write_bytes(b"\xff")
    assert ask("k1") == IS_SET
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    with pytest.raises(store.Unreachable, match="no server answers"):
        ask("k1")


def test_the_key_of_the_champion_is_the_store_s_or_else_the_baseline_s(
    root: Path, scored: Path, call: registry.Call, train: Callable[..., str], monkeypatch: Patch
):
    key = lambda: champion_key(root, "allo", "default")  # noqa: E731
    assert key() == ""
    shutil.copytree(scored, root, dirs_exist_ok=True)
    assert key() == "0" * 64
    train("k1")
    call("set_registered_model_alias", NAME, CHAMPION, "1")
    assert key() == "k1"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///none.db")
    assert key() == "0" * 64


def test_a_damaged_baseline_has_no_champion(space: Workspace):
    assert champions.provenances(space.root, "default")["allo"]["run_key"] == "0" * 64
    assert champions.provenances(space.root, "paper") == {}
    space.edit_baseline("{")
    assert champions.provenances(space.root, "default").keys() == MODELS.keys() - {"allo"}


# Rollback.


class Store:
    """A store with three versions of allo, whose runs were evaluated, and a checkout."""

    def __init__(self, call: registry.Call, train: Callable[..., str], space: Workspace) -> None:
        self.call, self.space = call, space
        for number, score in enumerate((0.999, 0.998, 0.5), 1):
            run_id = train(f"k{number}")
            scores = {**SCORES["allo"], "cosine_mean": score}
            files = {"scores": scores, "provenance": {**PROVENANCE, "run_key": f"k{number}"}}
            for name, content in files.items():
                file = space.root / f"{name}.json"
                file.write_text(json.dumps(content))
                call("log_artifact", run_id, str(file), "evaluation")

    def champion(self) -> str | None:
        return version_of(self.call, CHAMPION)

    def all(self) -> list[Any]:
        return registry.versions_of(self.call, NAME)

    def promote(self, number: int) -> None:
        """As if the run of a version had been promoted."""
        content = self.space.baseline()
        content["presets"]["default"]["provenance"]["run_key"] = f"k{number}"
        self.space.edit_baseline(content)
        set_champions(self.space.root, self.space.root, "default", again=True)


@pytest.fixture
def versions(
    call: registry.Call, train: Callable[..., str], space: Workspace, uri: str, monkeypatch: Patch
) -> Store:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return Store(call, train, space)


def test_a_rollback_restores_the_champion_before_with_its_scores_as_baseline(
    versions: Store, capsys: Capture
):
    versions.promote(2)
    versions.promote(3)
    assert versions.champion() == "3"
    assert main(["rollback", "allo", "--why", "3 fails on site"]) == 0
    assert versions.champion() == "2"
    assert versions.space.metrics()["cosine_mean"]["value"] == 0.998
    entry = versions.space.baseline()["presets"]["default"]
    assert (entry["provenance"]["run_key"], entry["provenance"]["why"]) == ("k2", "3 fails on site")
    assert [each["provenance"]["run_key"] for each in entry["history"]] == ["k3"]
    assert capsys.readouterr().out.startswith(
        "baselines/allo.json: preset default now holds version 2's scores\n"
        "quatrain-allo@champion: version 2, run k2, in place of version 3\n"
    )
    left = {int(each.version): each.tags.get(LEFT) for each in versions.all()}
    assert left == {1: None, 2: None, 3: "3 fails on site"}


def test_a_second_rollback_goes_further_back_and_a_promotion_forgets_it(
    versions: Store, failure: Failure
):
    for number in (1, 2, 3):
        versions.promote(number)
    for expected in ("2", "1"):
        assert main(["rollback", "allo"]) == 0
        assert versions.champion() == expected
    why = "rollback: no version of quatrain-allo was the champion before version 1 in this store"
    assert failure(main, "rollback", "allo", code=2).startswith(why)
    versions.promote(3)
    assert not any(LEFT in each.tags for each in versions.all() if str(each.version) == "3")


def test_what_a_failure_between_alias_and_tags_left_is_mended(versions: Store, call: registry.Call):
    versions.promote(2)
    call("set_registered_model_alias", NAME, CHAMPION, "3")
    versions.promote(3)
    tags = {int(each.version): each.tags for each in versions.all()}
    assert SINCE in tags[3]
    assert UNTIL in tags[2]


def test_a_store_without_the_baselines_run_has_a_first_champion_and_rolls_back(versions: Store):
    """As on a machine that never had the author's runs."""
    root = versions.space.root
    set_champions(root, root, "default")
    assert versions.champion() == "2"  # version 3 breaks the baseline
    assert main(["rollback", "allo", "--version", "1"]) == 0
    assert versions.champion() == "1"


def test_a_version_that_cannot_be_set_changes_nothing(
    versions: Store, failure: Failure, train: Callable[..., str]
):
    before = versions.space.stored.read_bytes()
    why = "rollback: no version of quatrain-allo was the champion in this store"
    assert failure(main, "rollback", "allo", code=2) == f"{why}; name one by VERSION=: 3, 2, 1"
    why = "rollback: quatrain-allo has no version 7 in this store; name one by VERSION=: 3, 2, 1"
    assert failure(main, "rollback", "allo", "--version", "7", code=2) == why
    train("k4")
    why = "rollback: version 4 of quatrain-allo has no scores for a baseline: cosine_mean is judged"
    assert failure(main, "rollback", "allo", "--version", "4", code=3).startswith(why)
    versions.space.edit_baseline("{")
    why = "rollback: baselines/allo.json: cannot be read"
    assert failure(main, "rollback", "allo", "--version", "1", code=3).startswith(why)
    versions.space.stored.write_bytes(before)
    assert versions.space.stored.read_bytes() == before
    assert versions.champion() is None
