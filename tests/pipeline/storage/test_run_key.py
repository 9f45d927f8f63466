"""Which code a key covers."""

from pathlib import Path

import pytest

from pipeline.storage.run_key import WRITERS, code_of, imported_by
from quatrain.registry import MODELS, load
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch

BESIDE = {"serve", "memory"}  # of a model: they answer and estimate, and shape no result


def covered(model: str, verb: str) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in code_of(f"quatrain.models.{model}", verb)}


@pytest.mark.parametrize("model", [*MODELS, "allo.hosted", "iqn.hosted", "actor_critic.hosted"])
def test_a_key_covers_what_shapes_the_result_and_no_other_model(model: str):
    names = covered(model, "evaluate")
    folder = f"src/quatrain/models/{model.partition('.')[0]}/"
    assert {*WRITERS, "src/quatrain/progress.py"} <= names
    assert {f"{folder}config.py", f"{folder}losses.py", f"{folder}network.py"} <= names
    assert all(name.startswith(folder) for name in names if "/models/" in name)
    assert not names & {f"{folder}{name}.py" for name in BESIDE}
    assert not names & {"src/quatrain/params.py", "src/quatrain/registry.py"}
    assert covered(model, "collect") < covered(model, "train") < names


def test_a_key_covers_a_learners_memory_and_rules_of_its_environment():
    assert "src/quatrain/models/actor_critic/ppo/memory.py" in covered("actor_critic", "train")
    assert "src/quatrain/envs/colony/rules.py" in covered("actor_critic", "collect")


def test_a_key_does_not_depend_on_what_is_loaded(monkeypatch: Patch, tmp_path: Path):
    before = covered("iqn", "train")
    assert load("iqn").evaluate
    assert load("iqn").plots
    monkeypatch.chdir(tmp_path)
    assert covered("iqn", "train") == before


SOURCES = {
    "__init__": "from quatrain.never import seen",
    "a": "import os\nimport quatrain.b",
    "b": "def later():\n    from quatrain import pack\n    from quatrain.pack.c import d",
    "pack/__init__": "",
    "pack/c": "from quatrain.pack import missing\nfrom quatrain.a import b",
    "other": "",
}


def test_imports_are_followed_wherever_a_source_has_them(tmp_path: Path):
    for name, source in SOURCES.items():
        path = tmp_path / "src" / "quatrain" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    names = imported_by(tmp_path, ["quatrain.a"])
    assert names == {f"quatrain.{name}" for name in ("a", "b", "pack", "pack.c")}
