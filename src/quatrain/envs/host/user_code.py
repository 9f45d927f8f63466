"""code of users and libraries -> what it returns, or one DataError, whatever it raises

All of it is called inside `user_code`: import, construction, spaces, reset, step and close.
"""

import importlib
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any

import gymnasium

from quatrain.errors import DataError

LONGEST_REASON = 300
# Only one thread at a time may hide the arguments of the process.
_MAKING = RLock()


@contextmanager
def user_code(message: Callable[[str], str]) -> Iterator[None]:
    """Raises whatever the block raises as a DataError, and restores the modes of torch.

    message: the reason -> the line; called only where the block raises. A Ctrl-C passes.

    Raises:
        DataError: the block raised, be it SystemExit.
    """
    with _kept_by_torch("modes_kept"):
        try:
            yield
        except BaseException as error:
            if _is_ctrl_c(error):
                raise
            raise DataError(message(_reason(error))) from error


def make_env(module: str, attribute: str, env_id: str, kwargs: Mapping[str, Any]) -> Any:
    """Imports the module, if one is named, and returns what its attribute returns; without an
    attribute, the environment of a registered id.

    A module that parses arguments when it is imported finds none.

    Raises:
        DataError: the attribute returned a class. What the code raises is not caught.
    """
    with _MAKING, _kept_by_torch("default_device_kept"):
        argv = sys.argv
        sys.argv = argv[:1]
        try:
            imported = importlib.import_module(module) if module else None
            if not attribute:
                return gymnasium.make(env_id, **kwargs)
            env = getattr(imported, attribute)(**kwargs)
        finally:
            sys.argv = argv
    if isinstance(env, type):
        raise DataError(f"{attribute} returned the class {env.__name__}; return {env.__name__}()")
    return env


def _kept_by_torch(name: str) -> AbstractContextManager[None]:
    """Keeps nothing where torch is not loaded: a JAX model never loads it."""
    if "torch" not in sys.modules:
        return nullcontext()
    modes = importlib.import_module("quatrain.frameworks.torch.modes")
    kept: AbstractContextManager[None] = getattr(modes, name)()
    return kept


def _is_ctrl_c(error: BaseException) -> bool:
    """Returns whether a signal may have raised it: a stage's own handler never does so."""
    return (
        isinstance(error, KeyboardInterrupt)
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _reason(error: BaseException) -> str:
    try:
        text = " ".join(str(error).split())[:LONGEST_REASON]
    except BaseException:
        text = "it has no text, for its __str__ raises"
    return text if isinstance(error, DataError) else f"{type(error).__name__}: {text}"
