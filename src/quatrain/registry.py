"""name of a model -> its modules, imported when first used: the one table that names the models."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, get_args

from quatrain import contract

Framework = Literal["jax", "torch"]
FRAMEWORKS: tuple[str, ...] = get_args(Framework)

MODELS: dict[str, Framework] = {
    "allo": "jax",
    "iqn": "jax",
    "actor_critic": "torch",
    "active_dynamics": "torch",
}


@dataclass(frozen=True)
class Model:
    """Holds a model's modules (contract.py); each is imported when first read."""

    name: str
    framework: Framework

    @property
    def collect(self) -> contract.CollectModule[Any, Any]:
        return self._module("collect")

    @property
    def losses(self) -> contract.LossesModule[Any]:
        return self._module("losses")

    @property
    def train(self) -> contract.TrainModule[Any, Any, Any]:
        return self._module("train")

    @property
    def evaluate(self) -> contract.EvaluateModule[Any, Any, Any]:
        return self._module("evaluate")

    @property
    def plots(self) -> contract.PlotsModule[Any, Any, Any]:
        return self._module("plots")

    @property
    def serve(self) -> contract.ServeModule[Any, Any, Any]:
        return self._module("serve")

    def _module(self, name: str) -> Any:
        return import_module(f"quatrain.models.{self.name}.{name}")


def load(name: str) -> Model:
    """Returns the model of this name.

    Raises:
        KeyError: there is no such model.
    """
    return Model(name, MODELS[name])
