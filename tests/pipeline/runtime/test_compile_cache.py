"""Compiled programs of the JAX stages outlive a run; what goes wrong with them costs a line."""

import os
import re
import shutil
import warnings
import zlib
from pathlib import Path

import pytest

from pipeline.runtime import compile_cache
from pipeline.runtime.compile_cache import (
    FOLDER,
    KEPT_FOLDERS,
    LOCK,
    checkout_of,
    enable,
    folder_name,
)
from tests.conftest import ROOT, params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_checkout import call
from tests.pipeline.small_project import Project

SUM = """
from pathlib import Path
from pipeline.runtime import compile_cache, stage
from pipeline.storage import params_file
chosen = params_file.read_params(Path.cwd())
stage.prepare_process(chosen)
compile_cache.enable(Path.cwd(), chosen)
import jax
print(float(jax.jit(lambda x: jax.numpy.sin(x).sum())(jax.numpy.arange(5.0))).hex())
"""


@pytest.fixture
def own_environment(monkeypatch: Patch) -> Patch:
    """What `enable` sets in the process is forgotten after the test."""
    theirs = ("JAX_", "TF_CPP_", "DVC_ROOT")
    others = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    monkeypatch.setattr(os, "environ", others)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    return monkeypatch


def summed(folder: Path, **variables: str) -> tuple[str, list[str]]:
    """What a process prints that compiles a small program, and its other lines."""
    said = call(folder, "python", "-c", SUM, PYTHONPATH=f"{ROOT / 'src'}:{ROOT}", **variables)
    (result,) = [line for line in said.splitlines() if line.startswith("0x1.")]
    return result, [line for line in said.splitlines() if line != result]


def programs(folder: Path) -> dict[str, bytes]:
    """Kept programs by name."""
    return {path.name: path.read_bytes() for path in folder.glob(f"{FOLDER}/*/*-cache")}


@pytest.mark.full
def test_a_training_with_kept_programs_gives_the_same_bytes_and_compiles_nothing(tmp_path: Path):
    cold, warm = (Project.create(tmp_path / name, "allo", code=True) for name in ("cold", "warm"))
    for verb in ("collect", "train"):
        assert cold.run(verb, JAX_COMPILATION_CACHE_DIR="").code == 0
    kept = programs(cold.root)
    assert any("run_chunk" in name for name in kept)
    for verb in ("collect", "train"):
        assert warm.run(verb, JAX_COMPILATION_CACHE_DIR=str(cold.root / FOLDER)).code == 0
    assert warm.hashes("data", "models") == cold.hashes("data", "models")
    assert programs(cold.root) == kept
    assert not (warm.root / FOLDER).exists()


@pytest.mark.full
@pytest.mark.usefixtures("own_environment")
def test_what_is_wrong_with_the_folder_costs_a_line_and_not_the_run(tmp_path: Path):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    result, lines = summed(tmp_path)
    assert lines == []
    whole = programs(tmp_path).keys()

    # A damaged program is compiled and written anew.
    for path in tmp_path.glob(f"{FOLDER}/*/*-cache"):
        path.write_bytes(path.read_bytes()[:50])
    again, (line,) = summed(tmp_path)
    assert again == result
    assert line.startswith("warning: a compiled program was compiled anew: ")
    assert programs(tmp_path).keys() == whole
    assert summed(tmp_path) == (result, [])

    # What a killed process left is removed.
    (program,) = tmp_path.glob(f"{FOLDER}/*/jit__lambda*-cache")
    program.with_name(program.name.replace("-cache", "-atime")).unlink()
    program.with_name("jit_gone-0-atime").write_bytes(b"")
    next(tmp_path.glob(f"{FOLDER}/*/jit_iota*-cache")).unlink()
    assert summed(tmp_path) == (result, [])
    names = {path.name for path in program.parent.iterdir()}
    assert {name for name in names if name.endswith("-atime")} == {
        name.replace("-cache", "-atime") for name in names if name.endswith("-cache")
    }
    assert program.exists()

    # A program that XLA takes for another machine's says nothing; only those of x86 name sse3.
    text = zlib.decompress(program.read_bytes())
    if b"+sse3," in text:
        program.write_bytes(zlib.compress(text.replace(b"+sse3,", b"+ssex,")))
        assert summed(tmp_path) == (result, [])
        assert any("ssex" in line for line in summed(tmp_path, TF_CPP_MIN_LOG_LEVEL="0")[1])

    # A folder that cannot be written.
    shutil.rmtree(tmp_path / FOLDER)
    (tmp_path / FOLDER).write_text("no folder")
    again, (line,) = summed(tmp_path)
    assert re.fullmatch(r"warning: compiled programs are not kept: .*: Not a directory", line)
    assert again == result


# Where they lie.


def test_other_threads_and_another_processor_have_programs_of_their_own(monkeypatch: Patch):
    single, double = (params_with({"threads": threads}) for threads in (1, 2))
    names = {folder_name(single), folder_name(double)}
    assert folder_name(params_with({"threads": 1, "devices": 2})) in names - {folder_name(single)}
    monkeypatch.setattr(compile_cache, "cpu_features", lambda: "fpu sse2")
    names.add(folder_name(single))
    monkeypatch.setattr(compile_cache, "cpu_name", lambda: "another")
    assert len({*names, folder_name(single)}) == 4


def test_presets_and_experiments_share_the_folder_of_the_checkout(own_environment: Patch):
    root = Path("/home/me/quatrain")
    assert checkout_of(root) == checkout_of(root / ".presets" / "smoke") == root
    own_environment.setenv("DVC_ROOT", str(root))
    assert checkout_of(Path("/elsewhere/tmp")) == root
    own_environment.setenv("DVC_ROOT", str(root / ".presets" / "smoke"))
    assert checkout_of(root / ".presets" / "smoke") == root


def test_a_folder_a_store_and_limits_that_the_user_chose_are_kept(
    own_environment: Patch, tmp_path: Path
):
    params = params_with({})
    own_environment.setenv("JAX_COMPILATION_CACHE_DIR", "gs://bucket/programs")
    enable(tmp_path, params)
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == "gs://bucket/programs"
    assert not list(tmp_path.iterdir())

    folder = tmp_path / "mine" / folder_name(params)
    own_environment.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    own_environment.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "12345")
    for _ in range(2):
        enable(tmp_path, params)
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == "12345"
    assert {path for path in tmp_path.rglob("*") if path.is_dir()} == {folder.parent, folder}


@pytest.mark.usefixtures("own_environment")
def test_kinds_that_nobody_uses_go_and_other_folders_stay(tmp_path: Path):
    old = [tmp_path / FOLDER / f"0.{number}.0-{number:016x}" for number in range(KEPT_FOLDERS)]
    other = tmp_path / FOLDER / "9.9-0123456789abcdef"
    for age, path in enumerate(old):
        path.mkdir(parents=True)
        (path / LOCK).touch()
        os.utime(path, (age, age))
    other.mkdir()
    enable(tmp_path, params_with({}))
    assert {path.name for path in (tmp_path / FOLDER).iterdir()} == {
        folder_name(params_with({})),
        other.name,
        *(path.name for path in old[1:]),
    }
