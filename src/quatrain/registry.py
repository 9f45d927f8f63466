"""models/NAME -> a model's modules, imported when first used: a model is found by its folder.

The `__init__.py` of the folder declares its FRAMEWORK and its ORDER, the place of the model in
params, tables and reports.
"""

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal, get_args

from quatrain import models
from quatrain.contract import CONTRACT

Framework = Literal["jax", "torch"]
FRAMEWORKS: tuple[Framework, ...] = get_args(Framework)


def _find() -> dict[str, Framework]:
    """Returns the framework of each model, by ORDER and then by name."""
    folders = [
        import_module(f"{models.__name__}.{each.name}") for each in iter_modules(models.__path__)
    ]
    folders.sort(key=lambda folder: folder.ORDER)
    return {folder.__name__.rpartition(".")[2]: folder.FRAMEWORK for folder in folders}


MODELS = _find()
PACKAGES: dict[Framework, tuple[str, ...]] = {"jax": ("jax", "flax", "optax"), "torch": ("torch",)}


@dataclass(frozen=True)
class Model:
    """Holds a model's modules by their names in contract.py; each is imported when first read."""

    name: str
    framework: Framework

    @property
    def package(self) -> str:
        return f"{models.__name__}.{self.name}"

    def __getattr__(self, module: str) -> Any:
        if module not in CONTRACT:
            raise AttributeError(f"a model has no module {module}")
        try:
            return import_module(f"{self.package}.{module}")
        except ModuleNotFoundError as error:
            if error.name not in PACKAGES[self.framework]:
                raise
            remedy = f"pip install 'quatrain[{self.framework}]'"
            reason = f"{self.name} needs {error.name}, which is not installed; {remedy}"
            raise ModuleNotFoundError(reason, name=error.name) from error


def summary(name: str, config: Any, dataset: Any) -> str:
    """Returns in one line what a dataset has to learn from; nothing if the model does not tell."""
    collecting = load(name).collect
    return str(collecting.summary(config, dataset)) if hasattr(collecting, "summary") else ""


def load(name: str) -> Model:
    """Returns the model of this name.

    Raises:
        KeyError: there is no such model.
    """
    return Model(name, MODELS[name])
