"""saved state of one seed <-> the policy, network, optimiser and environments that train it"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor
from torch.optim import Adam

from quatrain.frameworks.torch import (
    AdamState,
    adam_state,
    generator_from_seed,
    generator_from_state,
    init_adam,
    load_adam,
    seeded,
)
from quatrain.models.actor_critic import network as networks
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.network import Network, Output
from quatrain.models.actor_critic.ppo.policy import Params, Policy, make_policy
from quatrain.replay.rollouts import buffer
from quatrain.replay.rollouts.buffer import Graphs, Rollout
from quatrain.replay.rollouts.envs import Envs, Spec

# The return of weights before their first evaluation: below any other, and finite as files need it.
NOT_EVALUATED = torch.finfo(torch.float32).min
# Limit of compiled programs: for each width of a batch one to act and two to learn, for full and
# for last minibatches.
PROGRAMS = 256


class Best(NamedTuple):
    """Holds the weights of highest return in a periodic evaluation, with which the policy is
    evaluated and served; without such evaluations the last weights.

    validation_success: None where episodes have no success.
    """

    params: dict[str, Tensor]
    validation_return: Float[Tensor, ""]
    validation_success: Float[Tensor, ""] | None
    iteration: Int64[Tensor, ""]

    @property
    def was_validated(self) -> bool:
        return float(self.validation_return) > NOT_EVALUATED


class SeedState(NamedTuple):
    """Holds everything that changes in one seed's learner, and the scale of observations that its
    weights expect, if there is one.

    envs: what changes beside the network: running episodes and generators.
    """

    params: dict[str, Tensor]
    best: Best
    scale: Any
    optimizer: AdamState
    envs: Any
    iterations: Int64[Tensor, ""]
    updates: Int64[Tensor, ""]


class State(NamedTuple):
    """Holds everything that changes while learning: each field has one part per seed."""

    params: tuple[dict[str, Tensor], ...]
    best: tuple[Best, ...]
    scale: tuple[Any, ...]
    optimizer: tuple[AdamState, ...]
    envs: tuple[Any, ...]
    iterations: tuple[Tensor, ...]
    updates: tuple[Tensor, ...]

    @classmethod
    def from_seeds(cls, seeds: Sequence[SeedState]) -> "State":
        return cls(*zip(*seeds, strict=True))

    @property
    def seeds(self) -> list[SeedState]:
        return [SeedState(*parts) for parts in zip(*self, strict=True)]


class Actor(NamedTuple):
    """Holds a policy and its network.

    forward: the network, perhaps compiled, for batches of the same few shapes. eager: the same for
    any shape.
    """

    policy: Policy
    forward: Callable[..., Output]
    eager: Callable[..., Output]

    @torch.no_grad()
    def params(self, graphs: Graphs) -> Params:
        """Returns the parameters of the distributions over actions."""
        return self.policy.distribution(self.eager(graphs).raw)

    @torch.no_grad()
    def value(self, graphs: Graphs) -> Float[Tensor, "batch *component"]:
        return self.eager(graphs).value

    def act(self, graphs: Graphs) -> Tensor:
        """Returns the actions of the deterministic policy."""
        return self.policy.action(self.policy.mean(self.params(graphs)))

    def draw(self, graphs: Graphs, generator: Generator) -> Tensor:
        return self.policy.action(self.policy.sample(self.params(graphs), generator))


@dataclass
class Learner:
    """Holds a policy in training, with its environments; an iteration changes it in place."""

    config: Config
    actor: Actor
    network: Network
    optimizer: Adam
    envs: Envs
    scale: Any
    draws: Generator
    order: Generator
    rollout: Rollout
    best: Best
    iterations: int
    updates: int


# Networks.


def make_network(config: Config, spec: Spec) -> Network:
    """Returns a network with weights from torch's global generator."""
    actions, size = make_policy(config.network.policy, spec).dist_params
    return networks.make(config.network, spec, actions * size)


def make_actor(config: Config, spec: Spec, network: Network) -> Actor:
    """Builds an actor; the config decides on compilation and, on a GPU, on half precision."""
    half = config.train.amp != "none" and on_gpu()
    eager = _in_half_precision(network) if half else network
    forward = eager
    if config.train.compile:
        torch._dynamo.config.recompile_limit = PROGRAMS
        forward = torch.compile(eager, dynamic=False)
    return Actor(make_policy(config.network.policy, spec), forward, eager)


def load_network(config: Config, spec: Spec, params: dict[str, Tensor]) -> Network:
    network = seeded(lambda: make_network(config, spec), 0)
    network.load_state_dict(params)
    return network


def load_actor(config: Config, spec: Spec, params: dict[str, Tensor]) -> Actor:
    """Returns the policy with these weights."""
    return make_actor(config, spec, load_network(config, spec, params))


def on_gpu() -> bool:
    return torch.get_default_device().type != "cpu"


def _in_half_precision(network: Network) -> Callable[..., Output]:
    def forward(*groups: Graphs) -> Output:
        with torch.autocast(groups[0].node.device.type, torch.bfloat16):
            return network(*groups)

    return forward


# States.


def first_state(config: Config, dataset: Any, sequence: np.random.SeedSequence) -> SeedState:
    """Returns a state before the first iteration."""
    world = config.world
    spec = world.spec_of(config, dataset)
    weights, envs, *purposes = world.split(sequence)
    network = seeded(lambda: make_network(config, spec), int(weights.generate_state(1)[0]))
    scale = world.begin_scale(config, dataset, network)
    policy, order = (generator_from_seed(purpose).get_state() for purpose in purposes)
    params = dict(network.state_dict())
    success = torch.tensor(0.0) if len(world.VALIDATED) > 1 else None
    return SeedState(
        params=params,
        best=Best(params, torch.tensor(NOT_EVALUATED), success, torch.tensor(0)),
        scale=scale,
        optimizer=init_adam({name: params[name] for name, _ in network.named_parameters()}),
        envs=world.first_state(config, dataset, envs, policy=policy, order=order),
        iterations=torch.tensor(0),
        updates=torch.tensor(0),
    )


def from_state(
    config: Config, dataset: Any, seed: SeedState, rollout: Rollout | None = None
) -> Learner:
    """Returns a learner that continues from the state, which stays unchanged; its environments are
    to be closed.

    Learners that run in turn may share the memory of `rollout`; without one it is allocated.
    """
    train = config.train
    spec = config.world.spec_of(config, dataset)
    network = load_network(config, spec, seed.params)
    optimizer = Adam(network.parameters(), lr=train.learning_rate, eps=train.adam_eps, fused=True)
    load_adam(optimizer, network, seed.optimizer)
    return Learner(
        config=config,
        actor=make_actor(config, spec, network),
        network=network,
        optimizer=optimizer,
        envs=config.world.make_envs(config, dataset, seed.scale, seed.envs),
        scale=seed.scale,
        draws=generator_from_state(seed.envs.policy),
        order=generator_from_state(seed.envs.order),
        rollout=allocate_rollout(config, dataset) if rollout is None else rollout,
        best=seed.best,
        iterations=int(seed.iterations),
        updates=int(seed.updates),
    )


def to_state(learner: Learner) -> SeedState:
    """Returns the state of a learner, copied."""
    generators = {"policy": learner.draws.get_state(), "order": learner.order.get_state()}
    return SeedState(
        params=copy_params(learner),
        best=learner.best,
        scale=learner.scale,
        optimizer=adam_state(learner.optimizer, learner.network),
        envs=learner.envs.save(**generators),
        iterations=torch.tensor(learner.iterations),
        updates=torch.tensor(learner.updates),
    )


def copy_params(learner: Learner) -> dict[str, Tensor]:
    return {name: param.clone() for name, param in learner.network.state_dict().items()}


def allocate_rollout(config: Config, dataset: Any) -> Rollout:
    spec = config.world.spec_of(config, dataset)
    policy = make_policy(config.network.policy, spec)
    return buffer.allocate(
        buffer.Sizes(
            horizon=config.train.horizon,
            envs=config.train.num_envs,
            cells=spec.cells,
            node_features=spec.node_features,
            graph_features=spec.graph_features,
            actions=policy.actions,
            dist_params=policy.dist_params,
            components=spec.components,
            values=() if config.network.value_heads == "total" else (spec.components,),
        )
    )


# Which weights are best.


def validate_if_due(
    learners: Sequence[Learner], dataset: Any
) -> Float[np.ndarray, "evaluation learner score"]:
    """Evaluates all learners every `evaluate_every` iterations and after the last one, and keeps
    the weights of each that were best so far, in place. Without such evaluations the last weights
    are the best ones.

    Returns the scores VALIDATED of the world, of which the first is the mean return: one
    evaluation, or none if none was due.
    """
    config = learners[0].config
    world = config.world
    done = learners[0].iterations
    every = config.train.evaluate_every
    scores = np.empty((0, len(learners), len(world.VALIDATED)))
    if not every:
        for learner in learners:
            _keep(learner, (NOT_EVALUATED, 0.0)[: len(world.VALIDATED)])
    elif done % every == 0 or done == config.train.steps:
        scores = np.array([[world.validate(learner, dataset) for learner in learners]])
        for learner, of_learner in zip(learners, scores[0], strict=True):
            if of_learner[0] > learner.best.validation_return:
                _keep(learner, of_learner)
        world.warn_if_failing(learners, scores[0])
    return scores


def _keep(learner: Learner, scores: Sequence[float] | Float[np.ndarray, " score"]) -> None:
    validated = [torch.tensor(score, dtype=torch.float32) for score in scores]
    learner.best = Best(
        params=copy_params(learner),
        validation_return=validated[0],
        validation_success=validated[1] if len(validated) > 1 else None,
        iteration=torch.tensor(learner.iterations),
    )
