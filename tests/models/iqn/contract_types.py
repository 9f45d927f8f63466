"""mypy checks the modules of iqn against the protocols of contract.py."""

from typing import Any

from quatrain.models.iqn import collect, evaluate, losses, memory, plots, rules, serve, train
from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.learn import State
from tests.contract_types import Modules

_modules: Modules[LearnerConfig, Any, State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
