"""Four learners, and six names to use them by: fit, load, make, config, evaluate, compare."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and mypy: `import quatrain` loads no library
    from quatrain.api.comparing import compare
    from quatrain.api.configs import config, make
    from quatrain.api.results import Result, load
    from quatrain.api.training import evaluate, fit
    from quatrain.errors import ConfigError

__version__ = "0.1.0"

__all__ = ["ConfigError", "Result", "compare", "config", "evaluate", "fit", "load", "make"]

_MODULES = {
    "ConfigError": "quatrain.errors",
    "Result": "quatrain.api.results",
    "compare": "quatrain.api.comparing",
    "config": "quatrain.api.configs",
    "evaluate": "quatrain.api.training",
    "fit": "quatrain.api.training",
    "load": "quatrain.api.results",
    "make": "quatrain.api.configs",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Imports an exported name when it is first used."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_MODULES[name]), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
