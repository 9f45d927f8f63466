"""Threads, device and determinism of params.yaml reach the framework of a stage's model, and its
compiled programs are kept.
"""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, Mock, call

import pytest
import torch

from pipeline.runtime import devices as runtime_devices
from pipeline.runtime.devices import (
    PROGRAMS,
    PROGRAMS_LOCK,
    keep_programs,
    on_device,
    programs_name,
    settings,
)
from pipeline.runtime.stage import prepare_process
from quatrain import devices
from quatrain.errors import DeviceMissing
from quatrain.frameworks.jax.flags import DEFAULTS
from quatrain.frameworks.torch import flags
from quatrain.registry import Framework
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Project


@pytest.fixture
def fake(monkeypatch: Patch) -> Mock:
    """In place of torch, in a machine with a device."""
    fake = Mock()
    assert flags.torch is torch  # its modes are those of the real one
    fake.cuda.is_available.return_value = True
    fake.get_num_threads.return_value = 7
    fake.get_num_interop_threads.return_value = 2
    fake.get_deterministic_debug_mode.return_value = 0
    fake.utils.deterministic.fill_uninitialized_memory = True
    fake.get_default_device.return_value = torch.device("cpu")
    fake.device.return_value = MagicMock()
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


def settings_of(fake: Mock) -> list[Any]:
    """What torch was told since the last look."""
    names = ("set_", "use_", "device")
    calls = [call for call in fake.mock_calls if call[0].startswith(names) and "__" not in call[0]]
    fake.reset_mock()
    return calls


def test_the_real_torch_is_deterministic_with_the_threads_and_has_its_own_back_after_a_failure():
    """Without determinism two threads add to one place of the gradient in any order."""
    memory: Any = torch.utils.deterministic

    def current() -> tuple[Any, ...]:
        threads, mode = torch.get_num_threads(), torch.get_deterministic_debug_mode()
        return threads, mode, memory.fill_uninitialized_memory, torch.get_default_device()

    index, weight = torch.randint(0, 7, (100_000,)), torch.rand(100_000, 4)
    table = torch.ones(7, 4, requires_grad=True)

    def gradient() -> torch.Tensor:
        return torch.autograd.grad((table[index] * weight).sum(), table)[0]

    before, cpu = current(), params_with({"device": "cpu", "threads": 3})
    with suppress(ZeroDivisionError), on_device(cpu, "torch"):
        assert current() == (3, 2, False, torch.device("cpu"))
        assert torch.get_num_interop_threads() == 1
        first = gradient()
        assert all(torch.equal(gradient(), first) for _ in range(5))
        raise ZeroDivisionError
    assert current() == before


NO_TORCH = (
    r"torch finds no NVIDIA device here \(or is built without CUDA\); set device: auto or cpu"
)
NO_JAX = r"jax finds no NVIDIA device here \(or is built without CUDA\); set device: auto or cpu"
NO_APPLE = "jax computes on Apple's processors only; set device: auto or cpu for jax models"


@pytest.mark.parametrize(
    ("framework", "device", "reason"),
    [("torch", "cuda", NO_TORCH), ("jax", "cuda", NO_JAX), ("jax", "mps", NO_APPLE)],
)
def test_a_device_that_is_not_there_is_refused_in_one_line(
    framework: Framework, device: str, reason: str, fake: Mock
):
    fake.cuda.is_available.return_value = False
    expected = f"^params.yaml: device = '{device}', but {reason}$"
    params = params_with({"device": device})
    with pytest.raises(DeviceMissing, match=expected), on_device(params, framework):
        pytest.fail("it works without a device")


def test_torch_works_on_apple_s_gpu_where_it_finds_one(fake: Mock):
    mps = params_with({"device": "mps", "threads": 3, "deterministic": True})
    fake.backends.mps.is_available.return_value = False
    expected = "device = 'mps', but torch finds no GPU of Apple here; set device: auto or cpu$"
    with pytest.raises(DeviceMissing, match=expected), on_device(mps, "torch"):
        pytest.fail("it works without a device")
    fake.backends.mps.is_available.return_value = True
    with on_device(mps, "torch"):
        assert settings(mps, "torch")["device"] == "mps"
        assert settings_of(fake)[-2:] == [
            call.use_deterministic_algorithms(True),
            call.device("mps"),
        ]
    with on_device(params_with({"device": "cuda", "deterministic": False}), "torch"):
        assert settings_of(fake)[-2:] == [
            call.use_deterministic_algorithms(False),
            call.device("cuda"),
        ]


@pytest.mark.usefixtures("fake")
def test_what_apple_s_gpu_cannot_compute_is_told_in_one_line():
    """torch's own words, for a tensor of 64-bit floats."""
    refusal = TypeError("Cannot convert a MPS Tensor to float64 dtype as the MPS framework ...")

    def compute(device: str, error: TypeError) -> None:
        with on_device(params_with({"device": device}), "torch"):
            raise error

    with pytest.raises(DeviceMissing, match="adds up in 64-bit floats, which Apple's GPUs lack"):
        compute("mps", refusal)
    for device, error in {"cpu": refusal, "mps": TypeError("another")}.items():
        with pytest.raises(TypeError):
            compute(device, error)


def test_auto_is_what_the_framework_can_reach_and_a_named_device_stays(
    fake: Mock, monkeypatch: Patch
):
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    automatic, cuda = params_with({"device": "auto"}), params_with({"device": "cuda"})
    assert settings(automatic, "jax")["device"] == "cpu"
    assert settings(automatic, "torch")["device"] == "cuda"
    fake.cuda.is_available.return_value = False
    assert settings(automatic, "torch")["device"] == "cpu"
    assert settings(cuda, "torch")["device"] == settings(cuda, "jax")["device"] == "cuda"


@pytest.mark.parametrize(
    ("variable", "value", "recorded"),
    [
        ("XLA_FLAGS", "--xla_cpu_enable_fast_math=true", "--xla_cpu_enable_fast_math=true"),
        ("XLA_FLAGS", devices.DETERMINISTIC_XLA, None),
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
    assert not {f"JAX_{name.upper()}" for name in DEFAULTS} & os.environ.keys()
    prepare_process(params)  # as a stage that another one starts
    assert settings(params, "jax").get("flags") == expected


@pytest.mark.full
def test_eigenvectors_do_not_depend_on_how_many_cores_the_process_may_use():
    """OpenBLAS counts them when it is loaded, so that each number of cores needs a process."""
    program = """
import hashlib, os, sys
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])
import numpy as np, scipy.linalg
from pipeline.runtime.devices import on_device
from tests.conftest import params_with
matrix = np.random.default_rng(0).standard_normal((300, 300))
with on_device(params_with({"threads": 2}), "jax"):
    for solve in (np.linalg.eigh, scipy.linalg.eigh):
        print(hashlib.sha256(solve(matrix @ matrix.T)[1].tobytes()).hexdigest())
"""
    of_one_core, of_all_cores = (
        subprocess.check_output([sys.executable, "-c", program, cores]) for cores in ("1", "64")
    )
    assert of_one_core == of_all_cores


# Compiled programs outlive a run; what goes wrong with them costs a line.


@pytest.fixture
def own_environment(monkeypatch: Patch) -> Patch:
    """What `keep_programs` sets in the process is forgotten after the test."""
    theirs = ("JAX_", "TF_CPP_", "DVC_ROOT")
    others = {name: text for name, text in os.environ.items() if not name.startswith(theirs)}
    monkeypatch.setattr(os, "environ", others)
    return monkeypatch


@pytest.mark.full
@pytest.mark.usefixtures("own_environment")
def test_a_training_with_kept_programs_gives_the_same_bytes_and_compiles_nothing(tmp_path: Path):
    def programs(folder: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in folder.glob(f"{PROGRAMS}/*/*-cache")}

    cold, warm = (Project.create(tmp_path / name, "allo", code=True) for name in ("cold", "warm"))
    for verb in ("collect", "train"):
        assert cold.run(verb).code == 0
    kept = programs(cold.root)
    assert any("run_chunk" in name for name in kept)
    for verb in ("collect", "train"):
        assert warm.run(verb, JAX_COMPILATION_CACHE_DIR=str(cold.root / PROGRAMS)).code == 0
    assert warm.hashes("data", "models") == cold.hashes("data", "models")
    assert programs(cold.root) == kept
    assert not (warm.root / PROGRAMS).exists()


@pytest.mark.usefixtures("own_environment")
def test_what_a_killed_process_left_is_removed(tmp_path: Path):
    folder = tmp_path / PROGRAMS / programs_name(params_with({}))
    folder.mkdir(parents=True)
    for name in ("jit_f-0-cache", "jit_f-0-atime", "jit_g-1-cache"):
        (folder / name).touch()
    keep_programs(tmp_path, params_with({}))
    assert {path.name for path in folder.iterdir()} == {
        "jit_f-0-cache",
        "jit_f-0-atime",
        PROGRAMS_LOCK,
    }


@pytest.mark.usefixtures("own_environment")
def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path: Path):
    (tmp_path / PROGRAMS).write_text("no folder")
    with pytest.warns(UserWarning, match=r"^compiled programs are not kept: .*: Not a directory$"):
        keep_programs(tmp_path, params_with({}))
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


def test_other_threads_and_another_processor_have_programs_of_their_own(monkeypatch: Patch):
    names = {
        programs_name(params_with(changed))
        for changed in ({"threads": 1}, {"threads": 2}, {"threads": 1, "devices": 2})
    }
    assert len(names) == 2
    for name in ("cpu_features", "cpu_name"):
        monkeypatch.setattr(runtime_devices, name, lambda: "another")
        names.add(programs_name(params_with({"threads": 1})))
    assert len(names) == 4


def test_a_folder_and_limits_that_the_user_chose_are_kept(own_environment: Patch, tmp_path: Path):
    folder = tmp_path / "mine" / programs_name(params_with({}))
    own_environment.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "mine"))
    own_environment.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "12345")
    for _ in range(2):
        keep_programs(tmp_path, params_with({}))
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)
    assert os.environ["JAX_COMPILATION_CACHE_MAX_SIZE"] == "12345"
