"""The modules of each model and the protocols of contract.py: mypy checks it, nothing runs it."""

from typing import TypeVar

from quatrain import contract

Config = TypeVar("Config")
Dataset = TypeVar("Dataset")
State = TypeVar("State")

Modules = tuple[
    contract.MemoryModule[Config],
    contract.CollectModule[Config, Dataset],
    contract.LossesModule[Config],
    contract.TrainModule[Config, Dataset, State],
    contract.RulesModule,
    contract.EvaluateModule[Config, Dataset, State],
    contract.PlotsModule[Config, Dataset, State],
    contract.ServeModule[Config, Dataset, State],
]


def allo() -> None:
    from quatrain.models.allo import collect, evaluate, losses, memory, plots, rules, serve, train
    from quatrain.models.allo.config import AlloConfig as Config

    _modules: Modules[Config, collect.Dataset, train.State]
    _modules = memory, collect, losses, train, rules, evaluate, plots, serve


def iqn() -> None:
    from quatrain.models.iqn import collect, evaluate, losses, memory, plots, rules, serve, train
    from quatrain.models.iqn.config import IqnConfig as Config

    _modules: Modules[Config, collect.Dataset, train.State]
    _modules = memory, collect, losses, train, rules, evaluate, plots, serve


def actor_critic() -> None:
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
    from quatrain.models.actor_critic.config import ActorCriticConfig as Config

    _modules: Modules[Config, collect.Dataset, train.State]
    _modules = memory, collect, losses, train, rules, evaluate, plots, serve


def active_dynamics() -> None:
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
    from quatrain.models.active_dynamics.config import ActiveDynamicsConfig as Config

    _modules: Modules[Config, collect.Dataset, train.State]
    _modules = memory, collect, losses, train, rules, evaluate, plots, serve
