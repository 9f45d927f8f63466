"""mypy checks the modules of sketch against the protocols of contract.py."""

from quatrain.models.sketch import collect, evaluate, losses, memory, plots, rules, serve, train
from quatrain.models.sketch.config import SketchConfig
from tests.contract_types import Modules

_modules: Modules[SketchConfig, collect.Dataset, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
