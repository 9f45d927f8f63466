"""Whether there is a GPU is what NVIDIA's driver says, not a file of /dev."""

from typing import Any

import pytest

from quatrain import nvidia


class Driver:
    """Answers as libcuda.so.1 does."""

    def __init__(self, status: int, gpus: int) -> None:
        self.status = status
        self.gpus = gpus

    def cuInit(self, _flags: int) -> int:
        return self.status

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self.gpus
        return 0


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (Driver(0, 1), True),
        (Driver(0, 0), False),
        (Driver(100, 0), False),  # CUDA_ERROR_NO_DEVICE
        (None, False),
    ],
)
def test_the_driver_tells(driver: Driver | None, expected: bool, monkeypatch: pytest.MonkeyPatch):
    def load(name: str) -> Driver:
        if driver is None:
            raise OSError(f"{name}: cannot open shared object file")
        return driver

    monkeypatch.setattr(nvidia, "CDLL", load)
    nvidia.gpu_count.cache_clear()
    try:
        assert nvidia.has_nvidia_gpu() is expected
    finally:
        nvidia.gpu_count.cache_clear()
