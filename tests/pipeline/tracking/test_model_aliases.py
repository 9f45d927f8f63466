"""Tests that the aliases of registered models follow the trained models and baselines."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import model_registry, store
from pipeline.tracking.model_registry import RUN_KEY_TAG, Alias
from tests.pipeline.recorded_runs import client_of
from tests.pipeline.scored_workspace import make_workspace

NAME = "quatrain-allo"


def add_version(uri: str, run_key: str) -> str:
    """Adds a version as the delivery of a run does; returns its number."""
    client: Any = client_of(uri)
    with model_registry.ignoring("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(NAME)
    return str(client.create_model_version(NAME, "/nowhere", tags={RUN_KEY_TAG: run_key}).version)


def version_of(uri: str, alias: str) -> str:
    return str(client_of(uri).get_model_version_by_alias(NAME, alias).version)


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return tmp_path


def test_trained_model_and_baseline_name_the_runs_of_the_aliases(tmp_path: Path):
    make_workspace(tmp_path)
    assert model_registry.expected_aliases(tmp_path, tmp_path, "default", ["allo"]) == [
        Alias(NAME, "candidate", "a" * 64),
        Alias(NAME, "champion", "0" * 64, fallback="a" * 64),
    ]


def test_a_run_that_broke_its_baseline_is_no_fallback(tmp_path: Path):
    make_workspace(tmp_path)["allo"].score(cosine_mean=0.5)
    _, champion = model_registry.expected_aliases(tmp_path, tmp_path, "default", ["allo"])
    assert champion == Alias(NAME, "champion", "0" * 64, fallback=None)


def test_a_model_trained_after_the_verdict_is_no_fallback(tmp_path: Path):
    make_workspace(tmp_path)["allo"].train("b" * 64)
    candidate, champion = model_registry.expected_aliases(tmp_path, tmp_path, "default", ["allo"])
    assert (candidate.run_key, champion.fallback) == ("b" * 64, None)


def test_a_preset_sets_aliases_only_of_models_that_it_changes(tmp_path: Path):
    make_workspace(tmp_path)
    assert [
        alias.model
        for alias in model_registry.expected_aliases(tmp_path, tmp_path, "paper", ["allo", "iqn"])
    ] == ["quatrain-allo-paper"]


def test_a_preset_has_its_own_registered_model(tmp_path: Path):
    make_workspace(tmp_path)
    (only,) = model_registry.expected_aliases(
        tmp_path, tmp_path, "smoke", ["allo"]
    )  # no baseline of smoke, so no champion
    assert only == Alias("quatrain-allo-smoke", "candidate", "a" * 64)


def test_without_training_and_baseline_there_are_no_aliases(tmp_path: Path):
    assert model_registry.expected_aliases(tmp_path, tmp_path, "default", ["allo", "iqn"]) == []


def test_aliases_are_set_to_the_versions_of_their_runs(root: Path, uri: str):
    first, second = add_version(uri, "k1"), add_version(uri, "k2")
    aliases = [Alias(NAME, "candidate", "k2"), Alias(NAME, "champion", "k1")]
    assert model_registry.set_aliases(root, aliases) == [
        "quatrain-allo@candidate: version 2, run k2",
        "quatrain-allo@champion: version 1, run k1",
    ]
    assert (version_of(uri, "champion"), version_of(uri, "candidate")) == (first, second)


def test_a_store_whose_aliases_are_set_is_not_asked_again(
    root: Path, uri: str, monkeypatch: pytest.MonkeyPatch
):
    add_version(uri, "k1")
    aliases = [Alias(NAME, "champion", "k1")]
    model_registry.set_aliases(root, aliases)
    monkeypatch.setattr(model_registry, "open_client", lambda _: pytest.fail("asked"))
    assert model_registry.set_aliases(root, aliases) == []


def test_a_deleted_alias_is_set_again_after_a_refresh(root: Path, uri: str):
    add_version(uri, "k1")
    aliases = [Alias(NAME, "champion", "k1")]
    model_registry.set_aliases(root, aliases)
    client_of(uri).delete_registered_model_alias(NAME, "champion")
    assert model_registry.set_aliases(root, aliases) == []
    assert model_registry.set_aliases(root, aliases, refresh=True) == [
        "quatrain-allo@champion: version 1, run k1"
    ]
    assert model_registry.set_aliases(root, aliases, refresh=True) == []


def test_the_champion_moves_when_the_baseline_does(root: Path, uri: str):
    add_version(uri, "k1"), add_version(uri, "k2")
    model_registry.set_aliases(root, [Alias(NAME, "champion", "k1")])
    assert model_registry.set_aliases(root, [Alias(NAME, "champion", "k2")]) == [
        "quatrain-allo@champion: version 2, run k2"
    ]
    assert version_of(uri, "champion") == "2"


def test_a_store_without_the_run_of_the_baseline_uses_the_fallback(root: Path, uri: str):
    add_version(uri, "k2")
    message = "quatrain-allo@champion: version 1, run k2"
    assert model_registry.set_aliases(
        root, [Alias(NAME, "champion", "elsewhere", fallback="k2")]
    ) == [message]
    add_version(uri, "k3")
    assert (
        model_registry.set_aliases(root, [Alias(NAME, "champion", "elsewhere", fallback="k3")])
        == []
    )
    messages = [
        "quatrain-allo@champion: run elsewhere has no version in this store; version 1 stays"
    ]
    assert (
        model_registry.set_aliases(
            root, [Alias(NAME, "champion", "elsewhere", fallback="k3")], refresh=True
        )
        == messages
    )
    assert version_of(uri, "champion") == "1"
    assert model_registry.set_aliases(root, [Alias(NAME, "champion", "k3")]) == [
        "quatrain-allo@champion: version 2, run k3"
    ]


def test_a_run_without_a_version_is_reported_and_looked_up_again(root: Path, uri: str):
    aliases = [Alias(NAME, "champion", "k1")]
    messages = ["quatrain-allo@champion: run k1 has no version in this store"]
    assert model_registry.set_aliases(root, aliases) == messages
    assert model_registry.set_aliases(root, aliases) == messages
    add_version(uri, "k1")
    assert model_registry.set_aliases(root, aliases) == [
        "quatrain-allo@champion: version 1, run k1"
    ]


def test_another_store_is_asked_for_all_aliases(
    root: Path, uri: str, monkeypatch: pytest.MonkeyPatch
):
    add_version(uri, "k1")
    aliases = [Alias(NAME, "champion", "k1")]
    model_registry.set_aliases(root, aliases)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    with pytest.raises(store.Unreachable, match="no server answers"):
        model_registry.set_aliases(root, aliases)


@pytest.mark.parametrize("note", [b"", b"[]", b'{"uri": 3}', b'{"aliases": {}}'])
def test_a_damaged_cache_file_is_ignored(root: Path, uri: str, note: bytes):
    add_version(uri, "k1")
    (root / ".state").mkdir()
    (root / ".state" / "aliases.json").write_bytes(note)
    assert model_registry.set_aliases(root, [Alias(NAME, "champion", "k1")]) == [
        "quatrain-allo@champion: version 1, run k1"
    ]
