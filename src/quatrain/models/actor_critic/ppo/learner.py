"""a policy, a network and its optimiser in training, whatever the environments"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor
from torch.optim import Adam

from quatrain.frameworks.torch import adam_state
from quatrain.models.actor_critic.config import Ppo
from quatrain.models.actor_critic.network import Network, Output
from quatrain.models.actor_critic.ppo.policy import Policy
from quatrain.models.actor_critic.ppo.state import NOT_EVALUATED, Best, SeedState
from quatrain.replay.rollouts.buffer import Rollout


@dataclass
class Learner:
    """Holds a policy in training; `iteration.run_iteration` changes it in place.

    forward: the network, perhaps compiled. weights: of the components of the reward.
    """

    train: Ppo
    policy: Policy
    forward: Callable[..., Output]
    network: Network
    weights: Float[Tensor, " component"]
    optimizer: Adam
    order: Generator
    rollout: Rollout
    best: Best
    iterations: int
    updates: int
    compiled: bool


AnyLearner = TypeVar("AnyLearner", bound=Learner)


def make_optimizer(train: Ppo, network: Network, state: adam_state.AdamState) -> Adam:
    """Returns an optimiser of the network that continues from the state, which is copied."""
    optimizer = Adam(network.parameters(), lr=train.learning_rate, eps=train.adam_eps, fused=True)
    adam_state.load_state(optimizer, network, state)
    return optimizer


def to_seed_state(learner: Learner, scale: Any, envs: Any) -> SeedState:
    """Returns the state of a learner, copied, with the scale of its observations and the state of
    its environments.
    """
    return SeedState(
        params=copy_params(learner),
        best=learner.best,
        scale=scale,
        optimizer=adam_state.get_state(learner.optimizer, learner.network),
        envs=envs,
        iterations=torch.tensor(learner.iterations),
        updates=torch.tensor(learner.updates),
    )


def copy_params(learner: Learner) -> dict[str, Tensor]:
    return {name: param.clone() for name, param in learner.network.state_dict().items()}


def score_if_due(
    learners: Sequence[AnyLearner],
    score: Callable[[AnyLearner], tuple[float, ...]],
    count: int,
) -> Float[np.ndarray, "evaluation learner score"]:
    """Evaluates all learners every `evaluate_every` iterations and after the last one, and keeps
    the weights of each that were best so far, in place. Without such evaluations the last weights
    are the best ones.

    Args:
        learners: after the same iterations.
        score: returns the mean return, then the share of successes if there are such.
        count: how many scores these are.

    Returns one evaluation, or none if none was due.
    """
    train = learners[0].train
    done = learners[0].iterations
    scores = np.empty((0, len(learners), count))
    if not train.evaluate_every:
        for learner in learners:
            _keep(learner, (NOT_EVALUATED, 0.0)[:count])
    elif done % train.evaluate_every == 0 or done == train.steps:
        scores = np.array([[score(learner) for learner in learners]])
        for learner, of_learner in zip(learners, scores[0], strict=True):
            if of_learner[0] > learner.best.validation_return:
                _keep(learner, of_learner)
    return scores


def _keep(learner: Learner, scores: Sequence[float] | Float[np.ndarray, " score"]) -> None:
    validated = [torch.tensor(score, dtype=torch.float32) for score in scores]
    learner.best = Best(
        params=copy_params(learner),
        validation_return=validated[0],
        validation_success=validated[1] if len(validated) > 1 else None,
        iteration=torch.tensor(learner.iterations),
    )
