"""Tests that the aliases of registered models follow the trained models and baselines."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking import model_registry, store
from pipeline.tracking.model_registry import RUN_KEY_TAG, Alias
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import client_of
from tests.pipeline.scored_workspace import make_workspace
from tests.pipeline.small_project import NOBODY

NAME = "quatrain-allo"
CHAMPION = [Alias(NAME, "champion", "k1")]
IS_SET = "quatrain-allo@champion: version 1, run k1"


def add_version(uri: str, run_key: str) -> str:
    """Adds a version as the delivery of a run does; returns its number."""
    client: Any = client_of(uri)
    with model_registry.ignoring("RESOURCE_ALREADY_EXISTS"):
        client.create_registered_model(NAME)
    return str(client.create_model_version(NAME, "/nowhere", tags={RUN_KEY_TAG: run_key}).version)


def version_of(uri: str, alias: str) -> str:
    return str(client_of(uri).get_model_version_by_alias(NAME, alias).version)


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    return tmp_path


def expected(folder: Path, preset: str = "default", *models: str) -> list[Alias]:
    return model_registry.expected_aliases(folder, folder, preset, models or ["allo"])


def test_trained_model_and_baseline_name_the_runs_of_the_aliases(tmp_path: Path):
    assert expected(tmp_path) == []
    workspace = make_workspace(tmp_path)["allo"]
    candidate = Alias(NAME, "candidate", "a" * 64)
    champion = Alias(NAME, "champion", "0" * 64, fallback="a" * 64)
    assert expected(tmp_path) == [candidate, champion]
    # A run that broke its baseline is no fallback, nor a model trained after the verdict.
    workspace.score(cosine_mean=0.5)
    assert expected(tmp_path) == [candidate, champion._replace(fallback=None)]
    workspace.score()
    workspace.train("b" * 64)
    trained = candidate._replace(run_key="b" * 64)
    assert expected(tmp_path) == [trained, champion._replace(fallback=None)]


def test_a_preset_has_registered_models_of_its_own_for_the_models_that_it_changes(tmp_path: Path):
    make_workspace(tmp_path)
    paper = expected(tmp_path, "paper", "allo", "iqn")
    assert [alias.model for alias in paper] == ["quatrain-allo-paper"]
    # There is no baseline of smoke, so no champion.
    smoke = [Alias("quatrain-allo-smoke", "candidate", "a" * 64)]
    assert expected(tmp_path, "smoke") == smoke


def test_aliases_are_set_to_the_versions_of_their_runs_and_move_with_the_baseline(
    root: Path, uri: str, monkeypatch: Patch
):
    first, second = add_version(uri, "k1"), add_version(uri, "k2")
    aliases = [Alias(NAME, "candidate", "k2"), *CHAMPION]
    assert model_registry.set_aliases(root, aliases) == [
        "quatrain-allo@candidate: version 2, run k2",
        "quatrain-allo@champion: version 1, run k1",
    ]
    assert (version_of(uri, "champion"), version_of(uri, "candidate")) == (first, second)
    with monkeypatch.context() as patch:
        patch.setattr(model_registry, "open_client", lambda _: pytest.fail("asked"))
        assert model_registry.set_aliases(root, aliases) == []
    assert model_registry.set_aliases(root, [Alias(NAME, "champion", "k2")]) == [
        "quatrain-allo@champion: version 2, run k2"
    ]
    assert version_of(uri, "champion") == second


def test_a_deleted_alias_is_set_again_after_a_refresh(root: Path, uri: str):
    add_version(uri, "k1")
    assert model_registry.set_aliases(root, CHAMPION) == [IS_SET]
    client_of(uri).delete_registered_model_alias(NAME, "champion")
    assert model_registry.set_aliases(root, CHAMPION) == []
    assert model_registry.set_aliases(root, CHAMPION, refresh=True) == [IS_SET]
    assert model_registry.set_aliases(root, CHAMPION, refresh=True) == []


def test_a_run_without_a_version_is_reported_and_looked_up_again(root: Path, uri: str):
    for _ in range(2):
        reported = model_registry.set_aliases(root, CHAMPION)
        assert reported == ["quatrain-allo@champion: run k1 has no version in this store"]
    add_version(uri, "k1")
    assert model_registry.set_aliases(root, CHAMPION) == [IS_SET]


def test_a_store_without_the_run_of_the_baseline_uses_the_fallback(root: Path, uri: str):
    (elsewhere,) = (alias._replace(run_key="elsewhere", fallback="k1") for alias in CHAMPION)
    add_version(uri, "k1")
    assert model_registry.set_aliases(root, [elsewhere]) == [IS_SET]
    add_version(uri, "k2")
    elsewhere = elsewhere._replace(fallback="k2")
    assert model_registry.set_aliases(root, [elsewhere]) == []
    assert model_registry.set_aliases(root, [elsewhere], refresh=True) == [
        "quatrain-allo@champion: run elsewhere has no version in this store; version 1 stays"
    ]
    assert version_of(uri, "champion") == "1"


@pytest.mark.parametrize("note", [b"", b"[]", b'{"uri": 3}', b'{"aliases": {}}'])
def test_a_damaged_cache_file_is_ignored_and_one_of_another_store(
    root: Path, uri: str, note: bytes, monkeypatch: Patch
):
    add_version(uri, "k1")
    (root / ".state").mkdir()
    (root / ".state" / "aliases.json").write_bytes(note)
    assert model_registry.set_aliases(root, CHAMPION) == [IS_SET]
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    with pytest.raises(store.Unreachable, match="no server answers"):
        model_registry.set_aliases(root, CHAMPION)
