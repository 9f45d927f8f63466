"""Whatever decides how an environment of a user behaves changes the key of a computation."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.runtime.stage import Stage
from pipeline.storage import environment_key
from pipeline.storage.environment_key import environment_of
from pipeline.storage.params_file import read_params
from pipeline.storage.run_key import inputs_of
from quatrain.envs.host.config import HostEnv
from tests.conftest import ROOT
from tests.models.iqn import hosted_envs
from tests.pipeline.fixture_types import Patch

FILES = {
    "inputs/iqn/walls.py": "import helper\nfrom . import beside\nopen('mark', 'w')\nMaze = 1\n",
    "inputs/iqn/beside.py": "",
    "inputs/iqn/other.py": "",
    "helper.py": "def broken(:\n",
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
    how = {"kind": "gymnasium", "kwargs": {}, "max_episode_steps": 9}
    return HostEnv.model_validate({**how, "id": env_id, "import": imported})


@pytest.mark.parametrize(
    ("imported", "covered"),
    [
        ("inputs.iqn.walls:Maze", {"inputs/iqn/walls.py", "inputs/iqn/beside.py", "helper.py"}),
        ("registering:make", {"registering/__init__.py", "registering/inner/maze.py"}),
        ("nowhere:make", set()),
    ],
)
def test_modules_of_the_user_are_covered_with_what_they_import_and_not_run(
    imported: str, covered: set[str], own_code: Path
):
    before = environment_of(env(None, imported))
    assert environment_of(env(None, imported)) == before
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
    version = environment_key.version

    def newer(name: str) -> str:
        return version(name) + "1" * (name == distribution)

    monkeypatch.setattr(environment_key, "version", newer)
    name = f"{distribution} (version)"
    expected = before | {name: f"{version(distribution)}1"}
    assert environment_of(env(env_id, imported)) == expected


def test_environments_of_quatrain_have_no_code_of_a_user():
    assert environment_of(read_params(ROOT).allo.env) == {}


def test_inputs_are_covered_by_their_bytes(own_code: Path):
    names = {"walls.py", "beside.py", "other.py"}
    assert inputs_of(own_code / "inputs" / "iqn").keys() == names
    assert inputs_of(own_code / "inputs" / "none") == {}


@pytest.mark.parametrize("verb", ["train", "evaluate"])
def test_an_edited_environment_is_another_computation(
    verb: str, own_code: Path, monkeypatch: Patch
):
    section: dict[str, Any] = hosted_envs.section("OneStep")
    section["env"] |= {"import": "inputs.iqn.walls:Maze"}
    params = read_params(ROOT).model_dump(mode="json", by_alias=True) | {"iqn": section}
    stage = Stage(verb, "iqn", own_code, type(read_params(ROOT)).model_validate(params))
    keys = {stage.key([])}
    for name in ("inputs/iqn/walls.py", "inputs/iqn/other.py", "helper.py"):
        (own_code / name).write_text(f"{FILES[name]}# edited\n")
        assert stage.key([]) not in keys, name
        keys.add(stage.key([]))
    monkeypatch.setattr(environment_key, "version", lambda _: "9")
    assert stage.key([]) not in keys
