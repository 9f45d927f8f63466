"""dataset -> weights: iterations of a rollout of all environments, and gradient steps on it"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch

from quatrain.errors import DeviceFull, DeviceMissing
from quatrain.frameworks.torch import from_template, single_threaded
from quatrain.frameworks.torch import to_arrays as to_arrays
from quatrain.models.actor_critic.collect import check
from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.ppo import learner as learning
from quatrain.models.actor_critic.ppo.iteration import run_iteration
from quatrain.models.actor_critic.ppo.learner import Learner
from quatrain.models.actor_critic.ppo.learner import State as State
from quatrain.progress import Progress, by_seed

WEIGHTS = ("best/", "scale/")
# Units up to which one thread is fastest: with two threads such a network took 2.5 times as long.
SMALL = 64
# What torch says where a CPU has no memory left.
CPU_MESSAGE = "can't allocate memory"


def headline(config: Config) -> tuple[str, str]:
    names: tuple[str, str] = config.world.HEADLINE
    return names


def init_state(config: Config, dataset: Any, seed: int) -> State:
    """Returns new networks, and environments before their first step; each seed draws from a random
    sequence of its own.
    """
    sequences = np.random.SeedSequence(seed).spawn(config.seeds)
    return State.from_seeds([learning.first_state(config, dataset, each) for each in sequences])


def update(config: Config, dataset: Any, state: State) -> tuple[State, Mapping[str, np.ndarray]]:
    """Returns the state after one iteration of all seeds, and its metrics; the given state stays
    unchanged.

    Raises:
        TrainingDiverged: something is not finite.
        DeviceFull: the device has no memory left.
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
        DeviceFull: the device has no memory left.
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
            with explain_out_of_memory(config, dataset), single_threaded(config.network.d <= SMALL):
                entries = [[run_iteration(each) for each in learners] for _ in range(count)]
                validated = learning.validate_if_due(learners, dataset)
            metrics = {
                name: np.array([[seed[name] for seed in entry] for entry in entries])
                for name in entries[0][0]
            }
            scores = zip(config.world.VALIDATED, np.moveaxis(validated, 2, 0), strict=True)
            yield Progress(
                step=learners[0].iterations,
                state=State.from_seeds([learning.to_state(each) for each in learners]),
                metrics=by_seed(metrics | dict(scores)),
            )


@contextmanager
def _learners(config: Config, dataset: Any, state: State) -> Iterator[list[Learner]]:
    """Makes the learners of all seeds, which share the memory of a rollout, and closes them."""
    with ExitStack() as stack:
        learners = []
        with explain_out_of_memory(config, dataset):
            shared = learning.allocate_rollout(config, dataset)
            for seed in state.seeds:
                learners.append(learning.from_state(config, dataset, seed, shared))
                stack.callback(learners[-1].envs.close)
        yield learners


@contextmanager
def explain_out_of_memory(config: Config, dataset: Any) -> Iterator[None]:
    """Replaces the device's message by the rollout's size and the keys that decide it.

    Raises:
        DeviceFull: the work inside ran out of memory.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and CPU_MESSAGE not in str(error):
            raise
        with torch.device("meta"):
            size = sum(column.nbytes for column in learning.allocate_rollout(config, dataset))
        raise DeviceFull(
            f"actor_critic: the device has no memory left; a rollout takes {size / 2**20:,.0f} "
            "MiB. Lower actor_critic.train.num_envs, .horizon or .minibatch_size"
            f"{config.world.MEMORY_KEYS}."
        ) from None


def check_device(config: Config) -> None:
    """Checks that this machine can train: a GPU for half precision, a GPU or C++ compiler for
    compilation.

    Raises:
        DeviceMissing: names the key.
    """
    if learning.on_gpu():
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
