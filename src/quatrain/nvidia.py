"""NVIDIA's driver -> whether this process has a GPU; loads no framework."""

from ctypes import CDLL, byref, c_int
from functools import cache


@cache
def has_nvidia_gpu() -> bool:
    """Returns whether NVIDIA's driver has a GPU for this process.

    The driver is asked, because files do not tell: a container may hold /dev/nvidia3 alone, WSL2
    has none, and CUDA_VISIBLE_DEVICES hides some.
    """
    try:
        driver = CDLL("libcuda.so.1")
    except OSError:
        return False
    count = c_int()
    return not driver.cuInit(0) and not driver.cuDeviceGetCount(byref(count)) and count.value > 0
