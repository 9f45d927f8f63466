"""dataset -> weights: iterations of a rollout of all environments, and gradient steps on it"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from quatrain.errors import DeviceMissing
from quatrain.frameworks.torch import (
    Adam,
    AdamState,
    from_template,
    generator_from_seed,
    generator_from_state,
    init_adam,
    seeded,
    single_threaded,
)
from quatrain.frameworks.torch import to_arrays as to_arrays
from quatrain.models.actor_critic.collect import check
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.network import load_network, make_actor, make_network, on_gpu
from quatrain.models.actor_critic.policy import make_policy
from quatrain.models.actor_critic.ppo import NOT_EVALUATED, Best, Learner, run_iteration
from quatrain.progress import Progress, by_seed
from quatrain.replay import rollouts
from quatrain.replay.rollouts import Rollout

WEIGHTS = ("best/", "scale/")
# Units up to which one thread is fastest: with two threads such a network took 2.5 times as long.
SMALL = 64


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


def headline(config: Config) -> tuple[str, str]:
    names: tuple[str, str] = config.world.HEADLINE
    return names


def init_state(config: Config, dataset: Any, seed: int) -> State:
    """Returns new networks, and environments before their first step; each seed draws from a random
    sequence of its own.
    """
    sequences = np.random.SeedSequence(seed).spawn(config.seeds)
    return State.from_seeds([first_state(config, dataset, each) for each in sequences])


def update(config: Config, dataset: Any, state: State) -> tuple[State, Mapping[str, np.ndarray]]:
    """Returns the state after one iteration of all seeds, and its metrics; the given state stays
    unchanged.

    Raises:
        TrainingDiverged: something is not finite.
        DataError: a user's environment raised.
    """
    (progress,) = _iterate(config, dataset, state, [1])
    return progress.state, progress.metrics


def train(
    config: Config, dataset: Any, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to `train.transitions`, from `state` if given; yields every `record_every` iterations.

    Raises:
        DatasetMismatch: the dataset was collected under another config.
        DeviceMissing: the config asks for half precision without a GPU, or for compilation without
            a compiler.
        TrainingDiverged: something is not finite; raised before the iterations since the last yield
            are yielded.
        DataError: a user's environment cannot be made, raised, or does not repeat an episode.
    """
    check(config, dataset)
    check_device(config)
    if state is None:
        state = init_state(config, dataset, seed)
    counts = config.train.counts(int(state.iterations[0]))
    yield from _iterate(config, dataset, state, counts)


def _iterate(
    config: Config, dataset: Any, state: State, counts: Sequence[int]
) -> Iterator[Progress]:
    """Runs these numbers of iterations, and yields after each number."""
    with _learners(config, dataset, state) as learners:
        for count in counts:
            with single_threaded(config.network.d <= SMALL):
                entries = [[run_iteration(each) for each in learners] for _ in range(count)]
                validated = validate_if_due(learners, dataset)
            metrics = {
                name: np.array([[seed[name] for seed in entry] for entry in entries])
                for name in entries[0][0]
            }
            scores = zip(config.world.VALIDATED, np.moveaxis(validated, 2, 0), strict=True)
            yield Progress(
                step=learners[0].iterations,
                state=State.from_seeds([to_state(each) for each in learners]),
                metrics=by_seed(metrics | dict(scores)),
            )


@contextmanager
def _learners(config: Config, dataset: Any, state: State) -> Iterator[list[Learner]]:
    """Makes the learners of all seeds, which share the memory of a rollout, and closes them."""
    with ExitStack() as stack:
        learners = []
        shared = allocate_rollout(config, dataset)
        for seed in state.seeds:
            learners.append(from_state(config, dataset, seed, shared))
            stack.callback(learners[-1].envs.close)
        yield learners


def check_device(config: Config) -> None:
    """Checks that this machine can train: a GPU for half precision, a GPU or C++ compiler for
    compilation.

    Raises:
        DeviceMissing: names the key.
    """
    if on_gpu():
        return
    if config.train.amp == "bf16":
        raise DeviceMissing(
            "params.yaml: actor_critic.train.amp = 'bf16', but torch finds no NVIDIA device here "
            "(or is built without CUDA), and on a CPU it was measured slower than float32; "
            "set amp: none"
        )
    if config.train.compile and not (
        shutil.which(os.environ.get("CXX", "g++")) or shutil.which("clang++")
    ):
        raise DeviceMissing(
            "params.yaml: actor_critic.train.compile = True, but no C++ compiler "
            "(g++, or what CXX names) is found here; install one, or set compile: false"
        )


def from_arrays(config: Config, dataset: Any, arrays: dict[str, np.ndarray]) -> State:
    """Returns the state that these arrays hold; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return from_template(init_state(config, dataset, 0), arrays)


# One learner.


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
    return Learner(
        config=config,
        actor=make_actor(config, spec, network),
        network=network,
        optimizer=Adam(network, seed.optimizer, train.learning_rate, train.adam_eps),
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
        optimizer=learner.optimizer.state,
        envs=learner.envs.save(**generators),
        iterations=torch.tensor(learner.iterations),
        updates=torch.tensor(learner.updates),
    )


def copy_params(learner: Learner) -> dict[str, Tensor]:
    return {name: param.clone() for name, param in learner.network.state_dict().items()}


def allocate_rollout(config: Config, dataset: Any) -> Rollout:
    spec = config.world.spec_of(config, dataset)
    steps = (config.train.horizon, config.train.num_envs)
    dist_params = make_policy(config.network.policy, spec).dist_params
    values = () if config.network.value_heads == "total" else (spec.components,)
    return rollouts.allocate(steps, spec, dist_params, values)


# Which weights are best.


def validate_if_due(
    learners: Sequence[Learner], dataset: Any
) -> Float[np.ndarray, "evaluation learner score"]:
    """Evaluates all learners every `evaluate_every` iterations and after the last one, and keeps
    the weights of each that were best so far, in place. Before the first evaluation, and without
    any, the last weights are the best ones.

    Returns the scores VALIDATED of the world, of which the first is the mean return: one
    evaluation, or none if none was due.
    """
    config = learners[0].config
    world = config.world
    done = learners[0].iterations
    every = config.train.evaluate_every
    scores = np.empty((0, len(learners), len(world.VALIDATED)))
    if every and (done % every == 0 or done == config.train.steps):
        scores = np.array([[world.validate(learner, dataset) for learner in learners]])
        for learner, of_learner in zip(learners, scores[0], strict=True):
            if of_learner[0] > learner.best.validation_return:
                _keep(learner, of_learner)
        world.warn_if_failing(learners, scores[0])
    for learner in learners:
        if not learner.best.was_validated:
            _keep(learner, (NOT_EVALUATED, 0.0)[: len(world.VALIDATED)])
    return scores


def _keep(learner: Learner, scores: Sequence[float] | Float[np.ndarray, " score"]) -> None:
    validated = [torch.tensor(score, dtype=torch.float32) for score in scores]
    learner.best = Best(
        params=copy_params(learner),
        validation_return=validated[0],
        validation_success=validated[1] if len(validated) > 1 else None,
        iteration=torch.tensor(learner.iterations),
    )
