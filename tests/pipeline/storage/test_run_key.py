"""A key changes with all that shapes a result, code and environment of a user included, and with
nothing else.
"""

from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime import stage as stages
from pipeline.runtime.stage import Stage
from pipeline.storage import run_key as keys
from pipeline.storage.run_key import WRITERS, code_of, environment_of, imported_by, sources_of
from quatrain.envs.host.config import NO_ENV, HostEnv
from quatrain.params import schemas_of
from quatrain.registry import MODELS, load
from tests.conftest import ROOT, params_with
from tests.models.allo import user_envs as allo_envs
from tests.models.iqn import user_envs
from tests.pipeline.fixture_types import Patch

# Code of quatrain.

BESIDE = {"serve", "memory"}  # of a model: they answer and estimate, and shape no result


SCHEMAS = [(model, schema) for model in MODELS for schema in schemas_of(model).values()]


@pytest.mark.parametrize(("model", "schema"), SCHEMAS)
def test_a_key_covers_what_shapes_the_result_and_no_other_model(model: str, schema: Any):
    def covered(verb: str) -> set[str]:
        files = code_of(load(model).package, schema.WORLD, verb)
        return {str(path.relative_to(ROOT)) for path in files}

    names = covered("evaluate")
    folder = f"src/quatrain/models/{model}/"
    world = f"src/{schema.WORLD.replace('.', '/')}.py"
    assert {world} - {"src/.py"} <= covered("collect")
    assert {*WRITERS, "src/quatrain/progress.py", "pipeline/stages/evaluate.py"} <= names
    assert {f"{folder}config.py", f"{folder}losses.py", f"{folder}network.py"} <= names
    assert all(name.startswith(folder) for name in names if "/models/" in name)
    assert not names & {f"{folder}{name}.py" for name in BESIDE}
    assert not names & {"src/quatrain/params.py", "src/quatrain/registry.py"}
    shorter = {f"pipeline/stages/{verb}.py" for verb in ("collect", "train")}
    assert covered("collect") - shorter < covered("train") - shorter < names


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


def test_sources_are_named_as_in_any_checkout():
    names = sources_of(ROOT, "allo", params_with({}), "train").keys()
    assert {"pipeline/stages/train.py", "src/quatrain/progress.py"} <= names
    assert {"inputs/allo/one_way.txt"} == {name for name in names if name.startswith("inputs")}


# Code of a user.

FILES = {
    "inputs/iqn/walls.py": "import helper\nfrom . import beside\nopen('mark', 'w')\nMaze = 1\n",
    "inputs/iqn/beside.py": "",
    "inputs/iqn/other.py": "",
    "helper.py": "def broken(:\n",
    "outer.py": "from inputs.iqn import other\nimport inputs\n",
    "registering/__init__.py": "register('Maze-v0', entry_point='registering.inner.maze:Maze')\n",
    "registering/inner/maze.py": "import pettingzoo\n",
}


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Modules of a user; one would leave a mark if it were imported."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def env(env_id: str | None, imported: str | None) -> HostEnv:
    how = {
        "kind": "gymnasium",
        "kwargs": {},
        "max_episode_steps": 9,
        "wrappers": [],
        "vectorization": "sync",
    }
    return HostEnv.model_validate({**how, "id": env_id, "import": imported})


@pytest.mark.usefixtures("own_code")
def test_the_modules_of_wrappers_are_covered():
    bare = env(None, "outer:make")
    wrapper = {"import": "inputs.iqn.walls:Maze", "kwargs": {}}
    wrapped = HostEnv.model_validate(bare.model_dump() | {"wrappers": [wrapper]})
    added = environment_of(wrapped).keys() - environment_of(bare).keys()
    assert "inputs.iqn.walls" in added


@pytest.mark.parametrize(
    ("imported", "covered"),
    [
        ("inputs.iqn.walls:Maze", {"inputs/iqn/walls.py", "inputs/iqn/beside.py", "helper.py"}),
        ("outer:make", {"outer.py", "inputs/iqn/other.py"}),
        ("registering:make", {"registering/__init__.py", "registering/inner/maze.py"}),
        ("nowhere:make", set()),
    ],
)
def test_modules_of_the_user_are_covered_with_what_they_import_and_not_run(
    imported: str, covered: set[str], own_code: Path
):
    before = environment_of(env(None, imported))
    for name in FILES:
        (own_code / name).write_text(f"{FILES[name]}# edited\n")
        assert (environment_of(env(None, imported)) != before) == (name in covered), name
        (own_code / name).write_text(FILES[name])
    assert environment_of(env(None, imported)) == before
    assert not (own_code / "mark").exists()


@pytest.mark.parametrize(
    ("env_id", "imported", "distribution"),
    [
        ("CartPole-v1", None, "gymnasium"),
        (None, "pettingzoo.butterfly.pistonball_v6:parallel_env", "pettingzoo"),
        ("Maze-v0", "registering", "pettingzoo"),
    ],
)
@pytest.mark.usefixtures("own_code")
def test_installed_modules_are_covered_by_the_version_of_their_distribution(
    env_id: str | None, imported: str | None, distribution: str, monkeypatch: Patch
):
    before = environment_of(env(env_id, imported))
    version = keys.version

    def newer(name: str) -> str:
        return version(name) + "1" * (name == distribution)

    monkeypatch.setattr(keys, "version", newer)
    name = f"{distribution} (version)"
    expected = before | {name: f"{version(distribution)}1"}
    assert environment_of(env(env_id, imported)) == expected


def test_the_files_of_a_recording_are_covered(tmp_path: Path, monkeypatch: Patch):
    def recording_of(path: str) -> dict[str, str]:
        values = allo_envs.section("Corridor")
        values["env"] |= {**NO_ENV, "kind": "recording", "path": path}
        return environment_of(params_with({"allo": values}).allo.env)

    (tmp_path / "other.csv").touch()
    keys_so_far = []
    for text in ("one", "two"):
        (tmp_path / "walk1.csv").write_text(text)
        covered = recording_of(str(tmp_path / "walk1.csv"))
        assert covered == recording_of(str(tmp_path / "walk*.csv"))
        assert covered not in keys_so_far
        keys_so_far.append(covered)
    monkeypatch.setattr(keys, "_versions_of", lambda name: {name: "9"})
    assert recording_of("minari:a/b-v0") == {"dataset": "minari:a/b-v0", "minari": "9"}


def test_environments_of_quatrain_have_no_code_of_a_user():
    assert environment_of(params_with({}).allo.env) == {}


# The key of a stage.


def test_a_stage_has_another_key_after_each_change_that_shapes_it(
    own_code: Path, monkeypatch: Patch
):
    section: dict[str, Any] = user_envs.section("OneStep")
    section["env"] |= {"import": "inputs.iqn.walls:Maze"}
    stage = Stage("train", "iqn", own_code, params_with({"iqn": section}))
    (own_code / "learner.py").touch()
    monkeypatch.setattr(keys, "code_of", lambda *_: [own_code / "learner.py"])

    def key_with(**changed: Any) -> str:
        return stage._replace(params=stage.params.model_copy(update=changed)).key(["d"])

    keys_so_far = {stage.key(["d"])}
    unchanged = {key_with(preset="x"), key_with(checkpoint_seconds=9), key_with(allo=None)}
    assert unchanged == keys_so_far
    for name in ("inputs/iqn/walls.py", "inputs/iqn/other.py", "helper.py", "learner.py"):
        with (own_code / name).open("a") as file:
            file.write("# edited\n")
        assert stage.key(["d"]) not in keys_so_far, name
        keys_so_far.add(stage.key(["d"]))
    others = [stage.key(["e"]), key_with(seed=9), stage._replace(verb="evaluate").key(["d"])]
    monkeypatch.setattr(keys, "version", lambda _: "9")
    others.append(stage.key(["d"]))
    monkeypatch.setattr(stages, "settings", lambda *_: {"threads": "9"})
    others.append(stage.key(["d"]))
    assert len({*keys_so_far, *others}) == len(keys_so_far) + len(others)
