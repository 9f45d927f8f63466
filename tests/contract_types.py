"""The modules of each model and the protocols of contract.py: mypy checks it, nothing runs it."""

from typing import TypeVar

from quatrain import contract
from quatrain.models.active_dynamics import collect as active_dynamics_collect
from quatrain.models.active_dynamics import evaluate as active_dynamics_evaluate
from quatrain.models.active_dynamics import losses as active_dynamics_losses
from quatrain.models.active_dynamics import plots as active_dynamics_plots
from quatrain.models.active_dynamics import serve as active_dynamics_serve
from quatrain.models.active_dynamics import train as active_dynamics_train
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.actor_critic import collect as actor_critic_collect
from quatrain.models.actor_critic import evaluate as actor_critic_evaluate
from quatrain.models.actor_critic import losses as actor_critic_losses
from quatrain.models.actor_critic import plots as actor_critic_plots
from quatrain.models.actor_critic import serve as actor_critic_serve
from quatrain.models.actor_critic import train as actor_critic_train
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.allo import collect as allo_collect
from quatrain.models.allo import evaluate as allo_evaluate
from quatrain.models.allo import losses as allo_losses
from quatrain.models.allo import plots as allo_plots
from quatrain.models.allo import serve as allo_serve
from quatrain.models.allo import train as allo_train
from quatrain.models.allo.config import AlloConfig
from quatrain.models.iqn import collect as iqn_collect
from quatrain.models.iqn import evaluate as iqn_evaluate
from quatrain.models.iqn import losses as iqn_losses
from quatrain.models.iqn import plots as iqn_plots
from quatrain.models.iqn import serve as iqn_serve
from quatrain.models.iqn import train as iqn_train
from quatrain.models.iqn.config import IqnConfig

Config = TypeVar("Config")
Dataset = TypeVar("Dataset")
State = TypeVar("State")

Modules = tuple[
    contract.CollectModule[Config, Dataset],
    contract.LossesModule[Config],
    contract.TrainModule[Config, Dataset, State],
    contract.EvaluateModule[Config, Dataset, State],
    contract.PlotsModule[Config, Dataset, State],
    contract.ServeModule[Config, Dataset, State],
]

ALLO: Modules[AlloConfig, allo_collect.Dataset, allo_train.State] = (
    allo_collect,
    allo_losses,
    allo_train,
    allo_evaluate,
    allo_plots,
    allo_serve,
)

IQN: Modules[IqnConfig, iqn_collect.Dataset, iqn_train.State] = (
    iqn_collect,
    iqn_losses,
    iqn_train,
    iqn_evaluate,
    iqn_plots,
    iqn_serve,
)

ACTOR_CRITIC: Modules[ActorCriticConfig, actor_critic_collect.Dataset, actor_critic_train.State] = (
    actor_critic_collect,
    actor_critic_losses,
    actor_critic_train,
    actor_critic_evaluate,
    actor_critic_plots,
    actor_critic_serve,
)

ACTIVE_DYNAMICS: Modules[
    ActiveDynamicsConfig, active_dynamics_collect.Dataset, active_dynamics_train.State
] = (
    active_dynamics_collect,
    active_dynamics_losses,
    active_dynamics_train,
    active_dynamics_evaluate,
    active_dynamics_plots,
    active_dynamics_serve,
)
