"""device, threads and determinism of params.yaml -> a framework that is set up with them."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from importlib.util import find_spec
from typing import Any, cast

from quatrain.errors import DeviceMissing
from quatrain.frameworks.settings import Shared
from quatrain.nvidia import has_nvidia_gpu
from quatrain.params import Params
from quatrain.registry import Framework

DETERMINISTIC_XLA = "--xla_gpu_deterministic_ops=true"
NO_NVIDIA = "finds no NVIDIA device here (or is built without CUDA)"


def framework_environment(params: Params, environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that jax and torch read when they are loaded, for these settings.

    environment: the present variables, of which flags are kept.
    """
    threads = str(params.threads)
    variables = {
        "NPROC": threads,
        "OMP_NUM_THREADS": threads,
        "OMP_WAIT_POLICY": "PASSIVE",
        "JAX_NUM_CPU_DEVICES": str(params.devices),
    }
    if params.device != "auto":
        variables["JAX_PLATFORMS"] = params.device
    if params.deterministic:
        flags = environment.get("XLA_FLAGS", "").split()
        ours = [] if DETERMINISTIC_XLA in flags else [DETERMINISTIC_XLA]
        variables["XLA_FLAGS"] = " ".join(flags + ours)
        variables["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    return variables


def device_of(params: Params, framework: Framework) -> str:
    """Returns the device of params.yaml, with `auto` resolved: cuda if this framework can reach
    one.

    Loads torch only for a torch model, and never jax.
    """
    if params.device != "auto":
        return params.device
    return "cuda" if _reaches_cuda(framework) else "cpu"


def _reaches_cuda(framework: Framework) -> bool:
    if framework == "torch":
        import torch

        return torch.cuda.is_available()
    return has_nvidia_gpu() and any(find_spec(f"jax_cuda{major}_plugin") for major in (12, 13))


def _missing(
    reason: str, value: object, key: str = "device", remedy: str = "set device: auto or cpu"
) -> DeviceMissing:
    return DeviceMissing(f"params.yaml: {key} = {value!r}, but {reason}; {remedy}")


@contextmanager
def on_device(params: Params, framework: Framework) -> Iterator[None]:
    """Sets up a framework, NumPy and SciPy as params.yaml says, and restores them afterwards; loads
    no other framework. Flags that change what is computed have the framework's defaults.

    Raises:
        DeviceMissing: `device: cuda` or `mps`, but there is no such device, no driver, or the build
            cannot use it; or the device cannot compute what the model needs.
        ConfigError: another thread computes on another device, or with other `threads`.
    """
    import numpy as np

    errors = np.errstate(divide="warn", over="warn", under="ignore", invalid="warn")
    with framework_on_device(params, framework), _blas_threads(params.threads), errors:
        yield


# Only compares the threads of those that compute at once; torch's are each thread's own.
_threads = Shared("threads", lambda _: nullcontext())


@contextmanager
def framework_on_device(params: Params, framework: Framework) -> Iterator[None]:
    """Does what `on_device` does, but for NumPy and SciPy, in a fraction of the time."""
    set_up = _jax_on_device if framework == "jax" else _torch_on_device
    with _threads(params.threads), set_up(params):
        yield


def _limited_blas(threads: int) -> AbstractContextManager[Any]:
    """Limits the threads of eigensolvers: without it they use all cores that the process may use,
    and the last bits of results depend on how many there are.
    """
    libraries = _blas_libraries()
    return libraries.limit(limits=threads, user_api="blas") if libraries else nullcontext()


@cache
def _blas_libraries() -> Any:
    """Returns what limits the BLAS of NumPy and that of SciPy; None without threadpoolctl. It reads
    the map of the process's memory, which takes a millisecond.
    """
    # Its BLAS is another than NumPy's, and limited only once it is loaded.
    import scipy.linalg  # noqa: F401

    if find_spec("threadpoolctl") is None:
        return None
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_blas_threads = Shared("threads of BLAS", _limited_blas)


@contextmanager
def _jax_on_device(params: Params) -> Iterator[None]:
    """Limits jax to as many GPUs as params.yaml says, and checks that they are there.

    jax reads all else from variables when it is loaded (`framework_environment`).
    """
    if params.device == "mps":
        remedy = "set device: auto or cpu for jax models"
        raise _missing("jax computes on Apple's processors only", "mps", remedy=remedy)
    if device_of(params, "jax") == "cuda":
        import jax

        # No variable sets this. A model uses all devices that jax sees.
        jax.config.update("jax_cuda_visible_devices", ",".join(map(str, range(params.devices))))
        try:
            if params.device == "cuda" or params.devices > 1:
                jax.devices("cuda")
        except (RuntimeError, AssertionError):  # AssertionError: jax 0.10 without any CUDA plug-in
            if params.devices == 1:
                raise _missing(f"jax {NO_NVIDIA}", "cuda") from None
            remedy = "lower devices, or set device: cpu"
            reason = "jax finds fewer NVIDIA devices here (or is built without CUDA)"
            raise _missing(reason, params.devices, "devices", remedy) from None
    from quatrain.frameworks.jax import default_flags

    with default_flags():
        yield


@contextmanager
def _torch_on_device(params: Params) -> Iterator[None]:
    """Sets threads, determinism and device of torch.

    The default device is set only where it is another, because it slows down every call of torch a
    little.
    """
    import torch

    from quatrain.frameworks.torch import default_flags

    device = device_of(params, "torch")
    if device == "cuda" and not torch.cuda.is_available():
        raise _missing(f"torch {NO_NVIDIA}", "cuda")
    if device == "mps" and not torch.backends.mps.is_available():
        raise _missing("torch finds no GPU of Apple here", "mps")
    if torch.get_num_interop_threads() != 1:
        # A process may set this only once, and only before torch has worked.
        with suppress(RuntimeError):
            torch.set_num_interop_threads(1)
    with ExitStack() as afterwards:
        afterwards.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(params.threads)
        afterwards.enter_context(_torch_determinism(device, params.deterministic))
        if torch.get_default_device().type != device:
            afterwards.enter_context(torch.device(device))
        with default_flags(), _double_precision_on(device):
            yield


@contextmanager
def _deterministic_torch(device: str, deterministic: bool) -> Iterator[None]:
    """Makes torch deterministic.

    A CPU always is: it costs nothing, and otherwise the gradient of `x[index]` differs with
    threads.
    """
    import torch

    memory = cast(Any, torch.utils.deterministic)
    with ExitStack() as afterwards:
        afterwards.callback(
            setattr, memory, "fill_uninitialized_memory", memory.fill_uninitialized_memory
        )
        # Filling new tensors with NaN finds mistakes, but costs time.
        memory.fill_uninitialized_memory = False
        afterwards.callback(
            torch.set_deterministic_debug_mode, torch.get_deterministic_debug_mode()
        )
        if device != "cpu":
            torch.use_deterministic_algorithms(deterministic)
        else:
            # As use_deterministic_algorithms, without loading the compiler for a second.
            torch.set_deterministic_debug_mode("error")
        yield


_torch_determinism = Shared("device of torch", _deterministic_torch)


@contextmanager
def _double_precision_on(device: str) -> Iterator[None]:
    """Tells in one line that Apple's GPUs have no 64-bit floats; torch has a TypeError for it."""
    try:
        yield
    except TypeError as error:
        if device != "mps" or "float64" not in str(error):
            raise
        reason = "the model adds up in 64-bit floats, which Apple's GPUs lack"
        raise _missing(reason, "mps") from error
