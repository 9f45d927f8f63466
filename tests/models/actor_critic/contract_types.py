"""mypy checks the modules of actor_critic against the protocols of contract.py."""

from typing import Any

from quatrain.models.actor_critic import (
    collect,
    evaluate,
    losses,
    memory,
    plots,
    rules,
    serve,
    train,
)
from quatrain.models.actor_critic.config import Config
from tests.contract_types import Modules

_modules: Modules[Config, Any, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
