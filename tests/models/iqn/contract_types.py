"""mypy checks the modules of iqn against the protocols of contract.py."""

from quatrain.models.iqn import collect, evaluate, losses, memory, plots, rules, serve, train
from quatrain.models.iqn.config import IqnConfig
from tests.contract_types import Modules

_modules: Modules[IqnConfig, collect.Dataset, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
