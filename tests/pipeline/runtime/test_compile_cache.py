"""Compiled programs of the JAX stages outlive a run; what goes wrong with them costs a line."""

import os
from pathlib import Path

import pytest

from pipeline.runtime import compile_cache
from pipeline.runtime.compile_cache import (
    FOLDER,
    KEPT_FOLDERS,
    LOCK,
    enable,
    folder_name,
)
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project


@pytest.fixture(autouse=True)
def own_environment(monkeypatch: Patch) -> Patch:
    """What `enable` sets in the process is forgotten after the test."""
    theirs = ("JAX_", "TF_CPP_", "DVC_ROOT")
    others = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    monkeypatch.setattr(os, "environ", others)
    return monkeypatch


@pytest.mark.full
def test_a_training_with_kept_programs_gives_the_same_bytes_and_compiles_nothing(tmp_path: Path):
    def programs(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob(f"{FOLDER}/*/*-cache")}

    cold, warm = (Project.create(tmp_path / name, "allo", code=True) for name in ("cold", "warm"))
    for verb in ("collect", "train"):
        assert cold.run(verb).code == 0
    kept = programs(cold.root)
    assert any("run_chunk" in name for name in kept)
    for verb in ("collect", "train"):
        assert warm.run(verb, JAX_COMPILATION_CACHE_DIR=str(cold.root / FOLDER)).code == 0
    assert warm.hashes("data", "models") == cold.hashes("data", "models")
    assert programs(cold.root) == kept
    assert not (warm.root / FOLDER).exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    folder = tmp_path / FOLDER / folder_name(params_with({}))
    folder.mkdir(parents=True)
    for name in ("jit_f-0-cache", "jit_f-0-atime", "jit_g-1-cache"):
        (folder / name).touch()
    enable(tmp_path, params_with({}))
    assert {path.name for path in folder.iterdir()} == {"jit_f-0-cache", "jit_f-0-atime", LOCK}


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path):
    (tmp_path / FOLDER).write_text("no folder")
    with pytest.warns(UserWarning, match=r"^compiled programs are not kept: .*: Not a directory$"):
        enable(tmp_path, params_with({}))
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_other_threads_and_another_processor_have_programs_of_their_own(monkeypatch: Patch):
    single, double = (params_with({"threads": threads}) for threads in (1, 2))
    names = {folder_name(single), folder_name(double)}
    assert folder_name(params_with({"threads": 1, "devices": 2})) in names - {folder_name(single)}
    monkeypatch.setattr(compile_cache, "cpu_features", lambda: "fpu sse2")
    names.add(folder_name(single))
    monkeypatch.setattr(compile_cache, "cpu_name", lambda: "another")
    assert len({*names, folder_name(single)}) == 4


def test_a_folder_and_limits_that_the_user_chose_are_kept(own_environment: Patch, tmp_path: Path):
    folder = tmp_path / "mine" / folder_name(params_with({}))
    own_environment.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    own_environment.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "12345")
    for _ in range(2):
        enable(tmp_path, params_with({}))
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == "12345"


def test_folders_that_nobody_uses_go_and_those_of_others_stay(tmp_path: Path):
    old = [tmp_path / FOLDER / f"0.{number}-{16 * 'a'}" for number in range(KEPT_FOLDERS)]
    other = tmp_path / FOLDER / "other"
    for age, path in enumerate(old):
        path.mkdir(parents=True)
        (path / LOCK).touch()
        os.utime(path, (age, age))
    for path in (other, other.with_name("jax-of-others")):
        path.mkdir()
        os.utime(path, (0, 0))
    (other.with_name("jax-of-others") / LOCK).touch()
    enable(tmp_path, params_with({}))
    kept = {
        *old[1:],
        other,
        other.with_name("jax-of-others"),
        tmp_path / FOLDER / folder_name(params_with({})),
    }
    assert {*(tmp_path / FOLDER).iterdir()} == kept
