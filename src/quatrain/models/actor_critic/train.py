"""plates -> weights: iterations of a rollout of all colonies, and gradient steps on it."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from quatrain.envs.colony.dynamics import make_world
from quatrain.errors import DeviceMissing
from quatrain.frameworks.torch import packing, threads
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.actor_critic import network
from quatrain.models.actor_critic.collect import Dataset, check
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import (
    colony_rollouts,
    iteration,
    memory,
    metrics,
    rollout,
    trainer,
    validation,
)
from quatrain.models.actor_critic.ppo.acting import make_scale, on_gpu
from quatrain.models.actor_critic.ppo.learner import to_seed_state
from quatrain.models.actor_critic.ppo.state import State as State
from quatrain.progress import Progress

WEIGHTS = ("best/", "scale/")
to_arrays = packing.to_arrays
# Units up to which one thread is fastest: with two threads such a network took 2.5 times as long.
SMALL = 64


def headline(config: ActorCriticConfig) -> tuple[str, str]:
    return "return", "success"


def init_state(config: ActorCriticConfig, dataset: Dataset, seed: int) -> State:
    """Returns new networks and colonies; each seed draws from a random sequence of its own."""
    world = make_world(config.env, dataset.train.plates)
    scale = make_scale(config, dataset)
    seeds = []
    for sequence in np.random.SeedSequence(seed).spawn(config.seeds):
        weights, drawn = sequence.spawn(2)
        net = network.init(config, int(weights.generate_state(1)[0]))
        generators = [generator_from_seed(purpose) for purpose in drawn.spawn(3)]
        seeds.append(trainer.init_seed_state(config, world, scale, net, generators))
    return State.from_seeds(seeds)


def update(
    config: ActorCriticConfig,
    dataset: Dataset,
    state: State,
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Returns the state after one iteration of all seeds, and its metrics; the given state stays
    unchanged.

    Raises:
        TrainingDiverged: something is not finite.
        DeviceFull: the device has no memory left.
    """
    (progress,) = _iterate(config, dataset, state, [1])
    return progress.state, progress.metrics


def train(
    config: ActorCriticConfig,
    dataset: Dataset,
    seed: int,
    state: State | None = None,
) -> Iterator[Progress]:
    """Trains to `train.transitions`, from `state` if given; yields every `record_every` iterations.

    Raises:
        DatasetMismatch: the dataset was collected under another config.
        DeviceMissing: the config asks for half precision without a GPU, or for compilation without
            a compiler.
        TrainingDiverged: something is not finite; raised before the iterations since the last yield
            are yielded.
        DeviceFull: the device has no memory left.
    """
    check(config, dataset)
    check_device(config)
    if state is None:
        state = init_state(config, dataset, seed)
    counts = config.train.counts(int(state.iterations[0]))
    yield from _iterate(config, dataset, state, counts)


def _iterate(
    config: ActorCriticConfig, dataset: Dataset, state: State, counts: Sequence[int]
) -> Iterator[Progress]:
    """Runs these numbers of iterations, and yields after each number."""
    world = make_world(config.env, dataset.train.plates)
    with memory.explain_out_of_memory(config):
        shared = rollout.allocate_rollout(config, config.train.num_envs)
        trainers = [trainer.from_state(config, world, seed, shared) for seed in state.seeds]
    for count in counts:
        with (
            memory.explain_out_of_memory(config),
            threads.single_threaded(config.network.d <= SMALL),
        ):
            entries = [
                [iteration.run_iteration(learner, colony_rollouts.collect) for learner in trainers]
                for _ in range(count)
            ]
        with threads.single_threaded(config.network.d <= SMALL):
            validated = validation.validate_if_due(trainers, dataset.train.validation)
        seeds = [
            to_seed_state(
                learner,
                learner.actor.scale,
                trainer.to_colony_state(learner.rollout_state, learner.order),
            )
            for learner in trainers
        ]
        yield Progress(
            step=trainers[0].iterations,
            state=State.from_seeds(seeds),
            metrics={**metrics.stack_entries(entries), **validated},
        )


def check_device(config: ActorCriticConfig) -> None:
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


def from_arrays(
    config: ActorCriticConfig,
    dataset: Dataset,
    arrays: dict[str, np.ndarray],
) -> State:
    """Returns the state that these arrays hold; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)
