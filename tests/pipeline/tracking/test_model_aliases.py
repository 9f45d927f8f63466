"""The aliases of registered models follow the learners and baselines at hand."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import model_aliases, store, versions
from pipeline.tracking.model_aliases import Wanted
from tests.pipeline.recorded_runs import client_of
from tests.pipeline.scored_workspace import make_workspace

NAME = "quatrain-allo"


def add_version(uri: str, run_key: str) -> str:
    """As the delivery of a run would; its number."""
    client: Any = client_of(uri)
    with versions.unless("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(NAME)
    return str(
        client.create_model_version(NAME, "/nowhere", tags={versions.RUN_KEY_TAG: run_key}).version
    )


def holder(uri: str, alias: str) -> str:
    return str(client_of(uri).get_model_version_by_alias(NAME, alias).version)


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return tmp_path


def test_learner_and_baseline_name_the_runs_that_bear_the_aliases(tmp_path: Path):
    make_workspace(tmp_path)
    assert model_aliases.wanted(tmp_path, tmp_path, "default", ["allo"]) == [
        Wanted(NAME, "candidate", "a" * 64),
        Wanted(NAME, "champion", "0" * 64, stand_in="a" * 64),
    ]


def test_a_run_that_broke_its_baseline_stands_in_for_no_champion(tmp_path: Path):
    make_workspace(tmp_path)["allo"].score(cosine_mean=0.5)
    _, champion = model_aliases.wanted(tmp_path, tmp_path, "default", ["allo"])
    assert champion == Wanted(NAME, "champion", "0" * 64, stand_in=None)


def test_a_learner_that_was_trained_after_the_verdict_stands_in_for_no_champion(tmp_path: Path):
    make_workspace(tmp_path)["allo"].train("b" * 64)
    candidate, champion = model_aliases.wanted(tmp_path, tmp_path, "default", ["allo"])
    assert (candidate.run_key, champion.stand_in) == ("b" * 64, None)


def test_a_preset_asks_only_for_the_models_that_it_changes(tmp_path: Path):
    make_workspace(tmp_path)
    assert [
        one.name for one in model_aliases.wanted(tmp_path, tmp_path, "paper", ["allo", "iqn"])
    ] == ["quatrain-allo-paper"]


def test_a_preset_has_a_model_of_its_own(tmp_path: Path):
    make_workspace(tmp_path)
    (only,) = model_aliases.wanted(
        tmp_path, tmp_path, "smoke", ["allo"]
    )  # no baseline of smoke, so no champion
    assert only == Wanted("quatrain-allo-smoke", "candidate", "a" * 64)


def test_what_is_not_trained_or_has_no_baseline_wants_nothing(tmp_path: Path):
    assert model_aliases.wanted(tmp_path, tmp_path, "default", ["allo", "iqn"]) == []


def test_aliases_go_to_the_versions_of_their_runs_and_are_noted(root: Path, uri: str):
    first, second = add_version(uri, "k1"), add_version(uri, "k2")
    aliases = [Wanted(NAME, "candidate", "k2"), Wanted(NAME, "champion", "k1")]
    assert model_aliases.crown(root, aliases) == [
        "quatrain-allo@candidate: version 2, run k2",
        "quatrain-allo@champion: version 1, run k1",
    ]
    assert (holder(uri, "champion"), holder(uri, "candidate")) == (first, second)


def test_a_settled_store_is_not_asked_again(root: Path, uri: str, monkeypatch: pytest.MonkeyPatch):
    add_version(uri, "k1")
    aliases = [Wanted(NAME, "champion", "k1")]
    model_aliases.crown(root, aliases)
    monkeypatch.setattr(model_aliases, "open_client", lambda _: pytest.fail("asked"))
    assert model_aliases.crown(root, aliases) == []


def test_an_alias_that_somebody_took_away_comes_back_when_the_store_is_asked_anew(
    root: Path, uri: str
):
    add_version(uri, "k1")
    aliases = [Wanted(NAME, "champion", "k1")]
    model_aliases.crown(root, aliases)
    client_of(uri).delete_registered_model_alias(NAME, "champion")
    assert model_aliases.crown(root, aliases) == []
    assert model_aliases.crown(root, aliases, anew=True) == [
        "quatrain-allo@champion: version 1, run k1"
    ]
    assert model_aliases.crown(root, aliases, anew=True) == []


def test_the_champion_moves_when_the_baseline_does(root: Path, uri: str):
    add_version(uri, "k1"), add_version(uri, "k2")
    model_aliases.crown(root, [Wanted(NAME, "champion", "k1")])
    assert model_aliases.crown(root, [Wanted(NAME, "champion", "k2")]) == [
        "quatrain-allo@champion: version 2, run k2"
    ]
    assert holder(uri, "champion") == "2"


def test_a_store_without_the_baselines_run_takes_one_that_held_the_baseline_until_another_is_promoted(
    root: Path, uri: str
):
    add_version(uri, "k2")
    told = "quatrain-allo@champion: version 1, run k2"
    assert model_aliases.crown(root, [Wanted(NAME, "champion", "elsewhere", stand_in="k2")]) == [
        told
    ]
    add_version(uri, "k3")
    assert model_aliases.crown(root, [Wanted(NAME, "champion", "elsewhere", stand_in="k3")]) == []
    told = ["quatrain-allo@champion: run elsewhere has no version in this store; version 1 stays"]
    assert (
        model_aliases.crown(root, [Wanted(NAME, "champion", "elsewhere", stand_in="k3")], anew=True)
        == told
    )
    assert holder(uri, "champion") == "1"
    assert model_aliases.crown(root, [Wanted(NAME, "champion", "k3")]) == [
        "quatrain-allo@champion: version 2, run k3"
    ]


def test_a_run_without_a_version_is_told_and_asked_for_again(root: Path, uri: str):
    aliases = [Wanted(NAME, "champion", "k1")]
    told = ["quatrain-allo@champion: run k1 has no version in this store"]
    assert model_aliases.crown(root, aliases) == told
    assert model_aliases.crown(root, aliases) == told
    add_version(uri, "k1")
    assert model_aliases.crown(root, aliases) == ["quatrain-allo@champion: version 1, run k1"]


def test_another_store_is_told_anew(root: Path, uri: str, monkeypatch: pytest.MonkeyPatch):
    add_version(uri, "k1")
    aliases = [Wanted(NAME, "champion", "k1")]
    model_aliases.crown(root, aliases)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(store.Unreachable, match="nobody answers there"):
        model_aliases.crown(root, aliases)


@pytest.mark.parametrize("note", [b"", b"[]", b'{"uri": 3}', b'{"aliases": {}}'])
def test_a_damaged_note_costs_no_more_than_a_question(root: Path, uri: str, note: bytes):
    add_version(uri, "k1")
    (root / ".state").mkdir()
    (root / ".state" / "aliases.json").write_bytes(note)
    assert model_aliases.crown(root, [Wanted(NAME, "champion", "k1")]) == [
        "quatrain-allo@champion: version 1, run k1"
    ]
