"""mypy checks the modules of actor_critic against the protocols of contract.py."""

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
from quatrain.models.actor_critic.config import ActorCriticConfig
from tests.contract_types import Modules

_modules: Modules[ActorCriticConfig, collect.Dataset, train.State]
_modules = memory, collect, losses, train, rules, evaluate, plots, serve
