"""device, threads and determinism of params.yaml -> a framework that computes with them, and the record of it."""

import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from quatrain.errors import DeviceMissing
from quatrain.params import Params
from quatrain.registry import Framework

LIBRARIES = ("jax", "jaxlib", "flax", "optax", "torch", "numpy", "scipy")


def settings(params: Params, framework: Framework) -> dict[str, str]:
    """What a result depends on beside code, params and data; recorded in manifests and tags."""
    return {
        "device": device_of(params, framework),
        "threads": str(params.threads),
        "python": platform.python_version(),
        "cpu": cpu_name(),
        **{name: version(name) for name in LIBRARIES},
    }


def device_of(params: Params, framework: Framework) -> str:
    """`auto` resolved: cuda where this framework can reach a device. Loads torch where it is asked for, never jax."""
    if params.device != "auto":
        return params.device
    return "cuda" if REACHES_CUDA[framework]() else "cpu"


def _jax_reaches_cuda() -> bool:
    """Without loading it: there is a device, and jax has its plug-in."""
    plugin = any(find_spec(f"jax_cuda{major}_plugin") for major in (12, 13))
    return plugin and Path("/dev/nvidia0").exists()


def _torch_reaches_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def cpu_name() -> str:
    """The processor's model name, for a CPU result repeats bit for bit only on its own type."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    found = [
        line.split(":", 1)[1].strip()
        for line in lines
        if line.startswith(("model name", "model\t", "cpu family"))
    ]
    return " / ".join(found[:3]) or platform.machine()


def on_device(params: Params, framework: Framework) -> AbstractContextManager[None]:
    """A framework set up as params.yaml says; afterwards it is as before. No other framework is loaded.

    Raises:
        DeviceMissing: `device: cuda`, and the framework can reach none: no device, no driver, or a build without CUDA.
    """
    return ON_DEVICE[framework](params)


@contextmanager
def _jax_on_device(params: Params) -> Iterator[None]:
    """All else is in variables that jax reads when it is loaded (`stage.prepare_process`)."""
    if params.device == "cuda":
        import jax

        try:
            jax.devices()
        except (RuntimeError, AssertionError):  # AssertionError: jax 0.10 without any CUDA plug-in
            raise _missing("jax") from None
    yield


@contextmanager
def _torch_on_device(params: Params) -> Iterator[None]:
    """On a CPU always deterministic: it costs nothing, and without it the gradient of `x[index]` differs by threads.

    The default device is set on a GPU only, for it slows down every call of torch a little.
    """
    import torch

    device, memory = device_of(params, "torch"), cast(Any, torch.utils.deterministic)
    if device == "cuda" and not torch.cuda.is_available():
        raise _missing("torch")
    if torch.get_num_interop_threads() != 1:
        torch.set_num_interop_threads(1)  # a process may do so once
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(params.threads)
        afterwards.callback(
            setattr, memory, "fill_uninitialized_memory", memory.fill_uninitialized_memory
        )
        memory.fill_uninitialized_memory = (
            False  # filling new tensors with NaN finds mistakes, but costs time
        )
        afterwards.callback(
            torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode()
        )
        if device == "cuda":
            afterwards.callback(torch.set_default_device, None)
            torch.set_default_device(device)
            torch.use_deterministic_algorithms(params.deterministic)
        else:
            torch.set_deterministic_debug_mode(
                "error"
            )  # the same, without loading the compiler for a second
        yield


def _missing(framework: Framework) -> DeviceMissing:
    why = f"{framework} finds no NVIDIA device here (or is built without CUDA); set device: auto or cpu"
    return DeviceMissing(f"params.yaml: device = 'cuda', but {why}")


REACHES_CUDA: dict[Framework, Callable[[], bool]] = {
    "jax": _jax_reaches_cuda,
    "torch": _torch_reaches_cuda,
}
ON_DEVICE: dict[Framework, Callable[[Params], AbstractContextManager[None]]] = {
    "jax": _jax_on_device,
    "torch": _torch_on_device,
}
