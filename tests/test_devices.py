"""Threads, device and determinism of params.yaml reach the framework of a model."""

import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock, call

import pytest
import torch

from quatrain import devices, nvidia
from quatrain.devices import device_of, on_device
from quatrain.errors import DeviceMissing
from quatrain.frameworks import torch as torch_settings
from quatrain.registry import Framework
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch


@pytest.fixture
def fake(monkeypatch: Patch) -> Mock:
    """In place of torch, in a machine with a device."""
    fake = Mock()
    assert torch_settings.torch is torch  # its modes are those of the real one
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


NO_CUDA = r"finds no NVIDIA device here \(or is built without CUDA\); set device: auto or cpu"
NO_APPLE = "computes on Apple's processors only; set device: auto or cpu for jax models"


@pytest.mark.parametrize(
    ("framework", "device", "reason"),
    [("torch", "cuda", NO_CUDA), ("jax", "cuda", NO_CUDA), ("jax", "mps", NO_APPLE)],
)
def test_a_device_that_is_not_there_is_refused_in_one_line(
    framework: Framework, device: str, reason: str, fake: Mock
):
    fake.cuda.is_available.return_value = False
    expected = f"^params.yaml: device = '{device}', but {framework} {reason}$"
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
    for device, deterministic in (("mps", True), ("cuda", False)):
        params = params_with({"device": device, "deterministic": deterministic})
        with on_device(params, "torch"):
            assert device_of(params, "torch") == device
            expected = [call.use_deterministic_algorithms(deterministic), call.device(device)]
            assert settings_of(fake)[-2:] == expected


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
    assert device_of(automatic, "jax") == "cpu"
    assert device_of(automatic, "torch") == "cuda"
    fake.cuda.is_available.return_value = False
    assert device_of(automatic, "torch") == "cpu"
    assert device_of(cuda, "torch") == device_of(cuda, "jax") == "cuda"


@pytest.mark.full
def test_eigenvectors_do_not_depend_on_how_many_cores_the_process_may_use():
    """OpenBLAS counts them when it is loaded, so that each number of cores needs a process."""
    program = """
import hashlib, os, sys
os.sched_setaffinity(0, list(os.sched_getaffinity(0))[: int(sys.argv[1])])
import numpy as np, scipy.linalg
from quatrain.devices import on_device
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


@pytest.mark.parametrize(("status", "count"), [(0, 2), (100, 0)])  # 100: CUDA_ERROR_NO_DEVICE
def test_the_driver_tells(status: int, count: int, monkeypatch: Patch):
    def tell(pointer: Any) -> int:
        pointer._obj.value = 2
        return 0

    driver = SimpleNamespace(cuInit=lambda _: status, cuDeviceGetCount=tell)
    monkeypatch.setattr(nvidia, "CDLL", lambda _: driver)
    assert nvidia.gpu_count.__wrapped__() == count
    monkeypatch.setattr(nvidia, "CDLL", Mock(side_effect=OSError("libcuda.so.1: cannot open")))
    assert nvidia.gpu_count.__wrapped__() == 0
