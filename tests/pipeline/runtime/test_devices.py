"""Variables that change numbers are in a stage's key or without effect; compiled programs outlive a
run, and what goes wrong with them costs a line.
"""

import os
from pathlib import Path

import pytest

from pipeline.runtime import devices
from pipeline.runtime.devices import (
    JAX_CACHE,
    JAX_CACHE_LOCK,
    enable_jax_cache,
    jax_cache_name,
    settings,
)
from pipeline.runtime.stage import prepare_process
from quatrain.devices import DETERMINISTIC_XLA
from quatrain.frameworks.settings import JAX_FLAGS
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch


@pytest.mark.parametrize(
    ("variable", "value", "recorded"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true", "--xla_cpu_enable_fast_math=true"),
        ("XLA_FLAGS", DETERMINISTIC_XLA, None),
        ("JAX_DISABLE_MOST_OPTIMIZATIONS", "1", "1"),
        ("JAX_RANDOM_SEED_OFFSET", "1", "1"),
        ("ONEDNN_MAX_CPU_ISA", "AVX2", "AVX2"),
        ("OPENBLAS_CORETYPE", "Haswell", "Haswell"),
        ("OPENBLAS_NUM_THREADS", "3", None),  # on_device decides it
        ("JAX_NUM_CPU_DEVICES", "3", None),  # params.yaml decides it
        ("JAX_DEFAULT_PRNG_IMPL", "rbg", None),  # a stage has jax's default
        ("JAX_ENABLE_X64", "1", None),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict", None),
        ("JAX_DEBUG_NANS", "1", None),
        ("JAX_COMPILATION_CACHE_DIR", "/tmp", None),
        ("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5", None),
    ],
)
def test_variables_that_change_numbers_are_without_effect_in_a_stage_or_part_of_its_key(
    variable: str, value: str, recorded: str | None, monkeypatch: Patch
):
    monkeypatch.setattr(os, "environ", {variable: value})
    params = params_with({"device": "auto"})
    prepare_process(params)
    expected = None if recorded is None else f"{variable}={recorded}"
    assert settings(params, "jax").get("flags") == expected
    assert not {f"JAX_{name.upper()}" for name in JAX_FLAGS} & os.environ.keys()
    prepare_process(params)  # as a stage that another one starts
    assert settings(params, "jax").get("flags") == expected


@pytest.fixture
def own_environment(monkeypatch: Patch) -> Patch:
    """What `enable_jax_cache` sets in the process is forgotten after the test."""
    theirs = ("JAX_", "TF_CPP_", "DVC_ROOT")
    others = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    monkeypatch.setattr(os, "environ", others)
    return monkeypatch


@pytest.mark.usefixtures("own_environment")
def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    folder = tmp_path / JAX_CACHE / jax_cache_name(params_with({}))
    folder.mkdir(parents=True)
    for name in ("jit_f-0-cache", "jit_f-0-atime", "jit_g-1-cache"):
        (folder / name).touch()
    enable_jax_cache(tmp_path, params_with({}))
    assert {path.name for path in folder.iterdir()} == {
        "jit_f-0-cache",
        "jit_f-0-atime",
        JAX_CACHE_LOCK,
    }


@pytest.mark.usefixtures("own_environment")
def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path):
    (tmp_path / JAX_CACHE).write_text("no folder")
    with pytest.warns(UserWarning, match=r"^compiled programs are not kept: .*: Not a directory$"):
        enable_jax_cache(tmp_path, params_with({}))
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_other_threads_and_another_processor_have_programs_of_their_own(monkeypatch: Patch):
    names = [
        jax_cache_name(params_with(changed))
        for changed in ({"threads": 1}, {"threads": 2}, {"threads": 1, "devices": 2})
    ]
    assert names[0] != names[1] == names[2]
    for name in ("cpu_features", "cpu_name"):
        monkeypatch.setattr(devices, name, lambda: "another")
        names.append(jax_cache_name(params_with({"threads": 1})))
    assert len({*names}) == 4


def test_a_folder_and_limits_that_the_user_chose_are_kept(own_environment: Patch, tmp_path: Path):
    folder = tmp_path / "mine" / jax_cache_name(params_with({}))
    own_environment.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    own_environment.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "12345")
    for _ in range(2):
        enable_jax_cache(tmp_path, params_with({}))
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == "12345"
