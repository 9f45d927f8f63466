"""settings that all threads of a process have in common -> made once for those that need them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Any

from quatrain.errors import ConfigError

# The defaults of jax's flags that shape numbers, by the name of its context manager;
# `jax.config.jax_NAME` and the variable JAX_NAME set it, too. A stage reads them without jax.
JAX_FLAGS: dict[str, Any] = {
    "allow_f16_reductions": True,
    "default_device": None,
    "default_matmul_precision": None,
    "default_prng_impl": "threefry2x32",
    "enable_custom_prng": False,
    "enable_x64": False,
    "legacy_prng_key": "allow",
    "numpy_dtype_promotion": "standard",
    "numpy_rank_promotion": "allow",
    "softmax_custom_jvp": False,
    "threefry_partitionable": True,
}


class Shared:
    """Enters a context for the first of the threads that compute at once, and leaves it after the
    last one; each by itself would undo the settings of the others.

    name: what messages call the settings.
    """

    def __init__(self, name: str, make: Callable[..., AbstractContextManager[Any]]) -> None:
        self._name = name
        self._make = make
        self._lock = Lock()
        self._users = 0
        self._settings: tuple[Any, ...] = ()
        self._afterwards = ExitStack()

    @contextmanager
    def __call__(self, *settings: Any) -> Iterator[None]:
        """Keeps the context of these settings entered.

        Raises:
            ConfigError: other settings are in use.
        """
        with self._lock:
            if not self._users:
                self._afterwards.enter_context(self._make(*settings))
                self._settings = settings
            elif settings != self._settings:
                raise ConfigError(
                    f"{self._name}: this process computes with {self._settings[0]!r} already, so "
                    f"that {settings[0]!r} cannot be had at the same time; wait until that ends, "
                    "or use another process"
                )
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._afterwards.close()
