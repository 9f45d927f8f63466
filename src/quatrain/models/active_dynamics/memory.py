"""config -> the least bytes that each verb needs."""

from quatrain.memory import ADAM, DOUBLE, FLOAT, Needs, dense
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig

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


def needs(config: ActiveDynamicsConfig) -> Needs:
    train, collect = config.train, config.collect
    d, channels = config.env.d, config.env.observation.channels
    # Observations before and after each transition.
    transitions = config.seeds * collect.warmup + collect.held_out_rollouts * ROLLOUT
    # As tensors, or as bytes of a file, and as arrays.
    data = {"transitions": 2 * 2 * transitions * (channels + d) * FLOAT}
    features = d * config.network.rbf.side**d if config.network.uses_rbf else 0
    bayes = config.network.family == "bayes_filter"
    weights = features if bayes else features + _network(config)
    # A record has copies of all that changes.
    learners = 2 * config.learners * _family(config, features)
    learning = {
        "learners": learners,
        "transitions of all learners": 4 * config.learners * train.transitions * channels * FLOAT,
        "checkpoints": 2 * config.learners * train.checkpoints * weights * FLOAT,
        "planned actions": (
            config.seeds * train.planner.candidates * train.planner.horizon * d * FLOAT
            if "active" in train.arms
            else 0
        ),
        "windows of a batch": _batch(config),
    }
    passing = {"planned actions": 0, "windows of a batch": 0}
    evaluation = {name: size // 2 for name, size in learning.items()} | passing
    return Needs(collect=data, train=data | learning, evaluate=data | evaluation, keys=KEYS)


def _family(config: ActiveDynamicsConfig, features: int) -> int:
    """Returns the bytes of what one learner learns: a covariance, or networks with moments."""
    if config.network.family == "bayes_filter":
        return (config.env.d + features) ** 2 * DOUBLE
    return _network(config) * (ADAM + FLOAT // 2)  # gradients are not in the copy


def _network(config: ActiveDynamicsConfig) -> int:
    """Returns the weights of a sequential autoencoder's recurrent layer and dynamics."""
    network = config.network.seq_vae
    channels = config.env.observation.channels
    weights = GATES * network.hidden * (channels + network.hidden)
    if network.dynamics != "rbf":
        weights += network.members * dense([config.env.d, *network.dynamics_hidden])
    return weights


def _batch(config: ActiveDynamicsConfig) -> int:
    """Returns the bytes of what gradients of one batch go back through."""
    if config.network.family == "bayes_filter":
        return 0
    windows = config.train.seq_vae
    rows = config.learners * windows.batch_size * windows.length
    return rows * GATES * config.network.seq_vae.hidden * FLOAT
