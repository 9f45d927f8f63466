"""settings -> a framework that computes with them for a while, in a process of the user's own."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib.util import find_spec

from quatrain.devices import framework_environment, on_device
from quatrain.errors import DeviceMissing, PackageMissing
from quatrain.frameworks.settings import Shared
from quatrain.memory import lack_explained
from quatrain.params import Params
from quatrain.registry import MODELS, PACKAGES, load

# What `framework_environment` sets.
VARIABLES = (
    "CUBLAS_WORKSPACE_CONFIG",
    "JAX_NUM_CPU_DEVICES",
    "JAX_PLATFORMS",
    "NPROC",
    "OMP_WAIT_POLICY",
    "XLA_FLAGS",
)


def require(user: str, packages: tuple[str, ...], extra: str) -> None:
    """Raises PackageMissing with the command that installs them, unless all packages are there."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise PackageMissing(
            f"{user} needs {' and '.join(missing)}: pip install 'quatrain[{extra}]'"
        )


@contextmanager
def computing(params: Params, model: str) -> Iterator[None]:
    """Sets up the framework of a model, and restores threads, device and variables afterwards.

    jax takes its device and number of threads once per process, when it is first used; later ones
    have no effect on it. Threads of the process may compute at the same time with equal settings.

    Raises:
        PackageMissing: the framework is not installed.
        DeviceMissing: there is no such device.
        DeviceFull: the device has no memory left.
        ConfigError: another thread computes with another device or other `threads`.
    """
    framework = MODELS[model]
    require(model, PACKAGES[framework], framework)
    variables = framework_environment(params, os.environ)
    # torch would keep it as its default; on_device sets the threads of torch and BLAS.
    del variables["OMP_NUM_THREADS"]
    with ExitStack() as afterwards:
        afterwards.enter_context(_variables_kept())
        platforms = os.environ.get("JAX_PLATFORMS")
        os.environ |= variables
        try:
            afterwards.enter_context(on_device(params, framework))
        except DeviceMissing as error:
            if framework == "jax":
                # jax would go on to look for no other device.
                import jax

                jax.config.update("jax_platforms", platforms)
            raise DeviceMissing(str(error).removeprefix("params.yaml: ")) from None
        if framework == "jax" and params.device == "cpu":
            _check_jax_is_on_cpu()
        needs = partial(load(model).memory.needs, getattr(params, model))
        afterwards.enter_context(lack_explained(model, needs))
        yield


def _check_jax_is_on_cpu() -> None:
    import jax

    backend = jax.default_backend()
    if backend != "cpu":
        raise DeviceMissing(
            f"device = 'cpu', but jax already computes on {backend} in this process; "
            "start a new one, or set JAX_PLATFORMS=cpu before jax is first used"
        )


@contextmanager
def _keep_variables() -> Iterator[None]:
    before = {name: os.environ.get(name) for name in VARIABLES}
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


_variables_kept = Shared("variables", _keep_variables)


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules and hasattr(sys.modules.get("IPython"), "get_ipython")
