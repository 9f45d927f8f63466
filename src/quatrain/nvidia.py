"""NVIDIA's driver -> whether this process has a GPU; loads no framework."""

from ctypes import CDLL, byref, c_int
from functools import cache


@cache
def gpu_count() -> int:
    """Returns how many GPUs NVIDIA's driver has for this process.

    The driver is asked, because files do not tell: a container may hold /dev/nvidia3 alone, WSL2
    has none, and CUDA_VISIBLE_DEVICES hides some.
    """
    try:
        driver = CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(byref(count)):
        return 0
    return count.value


def has_nvidia_gpu() -> bool:
    return gpu_count() > 0
