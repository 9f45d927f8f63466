"""mypy checks the modules of allo against the protocols of contract.py."""

from quatrain.models.allo import collect, evaluate, losses, memory, plots, rules, serve, train
from quatrain.models.allo.config import AlloConfig
from tests.contract_types import Modules

_modules: Modules[AlloConfig, collect.Dataset, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
