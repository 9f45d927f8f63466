"""Threads, device and determinism of params.yaml reach the framework of a stage's model."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pipeline.runtime import devices
from pipeline.runtime.devices import device_of, on_device, settings
from pipeline.runtime.stage import Stage, run_on_device
from quatrain.errors import DeviceMissing
from quatrain.params import Params
from quatrain.registry import MODELS, Framework
from tests.conftest import params_with
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Pretended

FRAMEWORKS: list[Framework] = ["jax", "torch"]


class FakeTorch(SimpleNamespace):
    """What a stage tells torch, in a machine with a device or without."""

    def __init__(self, available: bool, interop_threads: int = 2) -> None:
        self.calls: list[tuple[str, Any]] = []
        super().__init__(
            cuda=SimpleNamespace(is_available=lambda: available),
            utils=SimpleNamespace(deterministic=SimpleNamespace(fill_uninitialized_memory=True)),
            get_num_threads=lambda: 7,
            get_num_interop_threads=lambda: interop_threads,
            get_deterministic_debug_mode=lambda: 0,
        )
        for name in ("threads", "interop_threads"):
            setattr(self, f"set_num_{name}", self._hearing(f"num_{name}"))
        for name in ("default_device", "deterministic_debug_mode"):
            setattr(self, f"set_{name}", self._hearing(name))
        self.use_deterministic_algorithms = self._hearing("deterministic_algorithms")

    def _hearing(self, name: str) -> Any:
        return lambda value: self.calls.append((name, value))

    @property
    def filling(self) -> bool:
        return self.utils.deterministic.fill_uninitialized_memory


@pytest.fixture
def fake(request: pytest.FixtureRequest, monkeypatch: Patch) -> FakeTorch:
    fake = FakeTorch(**getattr(request, "param", {"available": True}))
    monkeypatch.setitem(sys.modules, "torch", fake)
    return fake


without_device = pytest.mark.parametrize("fake", [{"available": False}], indirect=True)


@pytest.fixture
def settings_of_torch() -> Iterator[None]:
    def current() -> tuple[Any, ...]:
        return torch.get_num_threads(), torch.get_deterministic_debug_mode(), fills()

    before = current()
    yield
    assert current() == before
    assert torch.get_default_device() == torch.device("cpu")


def fills() -> bool:
    return torch.utils.deterministic.fill_uninitialized_memory


def with_cpu(threads: int) -> Params:
    return params_with({"device": "cpu", "threads": threads})


# What torch is told.


@pytest.mark.parametrize("deterministic", [True, False])
def test_on_a_gpu_torch_works_there_deterministically_where_that_is_asked_for(
    deterministic: bool, fake: FakeTorch
):
    params = params_with({"device": "cuda", "threads": 3, "deterministic": deterministic})
    with on_device(params, "torch"):
        assert fake.calls == [
            ("num_interop_threads", 1),
            ("num_threads", 3),
            ("default_device", "cuda"),
            ("deterministic_algorithms", deterministic),
        ]
        assert not fake.filling
        fake.calls.clear()
    assert fake.calls == [
        ("default_device", None),
        ("deterministic_debug_mode", 0),
        ("num_threads", 7),
    ]
    assert fake.filling


@pytest.mark.parametrize("fake", [{"available": False, "interop_threads": 1}], indirect=True)
def test_threads_between_operations_are_set_once_in_a_process(fake: FakeTorch):
    with on_device(with_cpu(3), "torch"):
        assert fake.calls == [("num_threads", 3), ("deterministic_debug_mode", "error")]


def test_the_device_is_given_back_where_the_work_fails(fake: FakeTorch):
    with pytest.raises(ZeroDivisionError), on_device(params_with({"device": "cuda"}), "torch"):
        raise ZeroDivisionError
    assert ("default_device", None) in fake.calls


@pytest.mark.usefixtures("settings_of_torch")
def test_the_real_torch_takes_the_threads_and_has_its_own_back_afterwards():
    with on_device(with_cpu(3), "torch"):
        assert torch.get_num_threads() == 3
        assert torch.get_num_interop_threads() == 1
        assert torch.get_default_device() == torch.device("cpu")
        assert torch.are_deterministic_algorithms_enabled()
        assert not fills()


@pytest.mark.usefixtures("settings_of_torch")
def test_the_gradient_of_indexing_is_the_same_each_time():
    """Without determinism two threads add to one place in any order."""
    index, weight = torch.randint(0, 7, (100_000,)), torch.rand(100_000, 4)
    table = torch.ones(7, 4, requires_grad=True)

    def gradient() -> torch.Tensor:
        return torch.autograd.grad((table[index] * weight).sum(), table)[0]

    with on_device(with_cpu(2), "torch"):
        first = gradient()
        assert all(torch.equal(gradient(), first) for _ in range(5))


# Devices that are there, or not.


@without_device
@pytest.mark.usefixtures("fake")
def test_torch_without_a_device_is_refused_in_one_line():
    expected = (
        r"^params.yaml: device = 'cuda', but torch finds no NVIDIA device here \(or is built "
        r"without CUDA\); set device: auto or cpu$"
    )
    cuda = params_with({"device": "cuda"})
    with pytest.raises(DeviceMissing, match=expected), on_device(cuda, "torch"):
        pytest.fail("it works without a device")


def test_auto_is_what_the_framework_of_the_model_can_reach(fake: FakeTorch, monkeypatch: Patch):
    monkeypatch.setattr(devices, "find_spec", lambda _: None)
    automatic = params_with({"device": "auto"})
    assert device_of(automatic, "jax") == "cpu"
    assert device_of(automatic, "torch") == settings(automatic, "torch")["device"] == "cuda"
    fake.cuda.is_available = lambda: False
    assert device_of(automatic, "torch") == settings(automatic, "torch")["device"] == "cpu"


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_device_that_is_named_is_recorded_as_it_is(device: str, framework: Framework):
    assert settings(params_with({"device": device}), framework)["device"] == device


@pytest.mark.usefixtures("fake")
def test_a_stage_works_on_the_device_of_its_model(monkeypatch: Patch, tmp_path: Path):
    monkeypatch.setitem(MODELS, "allo", "torch")
    stage = Stage("train", "allo", tmp_path, params_with({"device": "cuda", "threads": 5}))
    calls: list[Any] = []
    run_on_device(stage, lambda *_: calls.extend(sys.modules["torch"].calls), Pretended())
    assert ("num_threads", 5) in calls
    assert ("default_device", "cuda") in calls


def test_every_model_names_a_framework_that_a_device_can_be_chosen_for():
    assert set(devices.ON_DEVICE) == set(devices.REACHES_CUDA) == set(FRAMEWORKS)
    assert set(MODELS.values()) <= set(FRAMEWORKS)
