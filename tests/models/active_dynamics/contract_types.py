"""mypy checks the modules of active_dynamics against the protocols of contract.py."""

from quatrain.models.active_dynamics import (
    collect,
    evaluate,
    losses,
    memory,
    plots,
    rules,
    serve,
    train,
)
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from tests.contract_types import Modules

_modules: Modules[ActiveDynamicsConfig, collect.Dataset, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
