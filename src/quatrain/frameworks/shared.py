"""settings that all threads of a process have in common -> made once for those that need them."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import Lock
from typing import Any

from quatrain.errors import ConfigError


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
