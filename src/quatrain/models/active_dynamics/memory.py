"""config -> about how many bytes each verb needs."""

from typing import Any

from quatrain.memory import ADAM, DOUBLE, FLOAT, TORCH_COPIES, Needs, dense
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, ActiveDynamicsUserEnvConfig

KEYS = (
    "seeds",
    "train.transitions",
    "env.observation.channels",
    "network.rbf.side",
    "network.seq_vae.hidden",
    "train.planner.candidates",
    "collect.held_out_rollouts",
)
# Transitions of a held-out rollout.
ROLLOUT = 100
# Gates of a recurrent unit.
GATES = 3


def needs(config: ActiveDynamicsConfig, interface: Any = None) -> Needs:
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return _user_env_needs(config, interface)
    train, collect = config.train, config.collect
    d, channels = config.env.d, config.env.observation.channels
    # Observations before and after each transition, as tensors and as arrays of a file.
    transitions = config.seeds * collect.warmup + collect.held_out_rollouts * ROLLOUT
    data = {"transitions": 2 * 2 * transitions * (channels + d) * FLOAT}
    plans = config.seeds * train.planner.candidates * train.planner.horizon
    features = d * config.network.rbf.side**d if config.network.uses_rbf else 0
    if config.network.family == "bayes_filter":
        learner, weights, rows = (d + features) ** 2 * DOUBLE, features, 0
    else:
        weights = features + _network(config)
        learner, rows = weights * ADAM, train.seq_vae.batch_size * train.seq_vae.length
    learners = config.learners * learner
    recorded = config.learners * train.transitions * channels * FLOAT
    return Needs(
        collect=data,
        train=data
        | {
            "learners": TORCH_COPIES * learners,
            "transitions of all learners": TORCH_COPIES * recorded,
            "checkpoints": TORCH_COPIES * config.learners * train.checkpoints * weights * FLOAT,
            "planned actions": plans * d * FLOAT if "active" in train.arms else 0,
            "windows of a batch": config.learners
            * rows
            * GATES
            * config.network.seq_vae.hidden
            * FLOAT,
        },
        evaluate=data | {"learners": learners, "transitions of all learners": recorded},
        keys=KEYS,
    )


def _user_env_needs(config: ActiveDynamicsUserEnvConfig, interface: Any) -> Needs:
    actions = len(interface.action_low) if interface else 1
    columns = config.network.features * (1 + actions)
    recorded = interface.max_episode_steps if interface and config.env.is_recorded else 0
    transitions = max(config.train.transitions, recorded, config.collect.held_out_transitions)
    learners = config.learners * 2 * columns**2 * DOUBLE
    rows = {"features of all transitions": 2 * transitions * columns * DOUBLE}
    return Needs(
        collect={},
        train=rows | {"learners": TORCH_COPIES * learners},
        evaluate=rows | {"learners": learners},
        keys=("seeds", "network.features", "train.transitions"),
    )


def _network(config: ActiveDynamicsConfig) -> int:
    """Returns the weights of a sequential autoencoder's recurrent layer and dynamics."""
    network = config.network.seq_vae
    channels = config.env.observation.channels
    weights = GATES * network.hidden * (channels + network.hidden)
    if network.dynamics != "rbf":
        weights += network.members * dense([config.env.d, *network.dynamics_hidden])
    return weights
