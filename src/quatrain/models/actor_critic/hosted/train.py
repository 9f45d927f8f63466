"""environments on the host -> weights: iterations of a rollout, and gradient steps on it"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import torch

from quatrain.envs.host.episodes import play_episodes
from quatrain.frameworks.torch import packing, threads
from quatrain.frameworks.torch.rng import generator_from_seed, seeded
from quatrain.models.actor_critic.hosted import network as networks
from quatrain.models.actor_critic.hosted import trainer as trainers
from quatrain.models.actor_critic.hosted.acting import deterministic_policy
from quatrain.models.actor_critic.hosted.collect import Dataset, check
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.network import ArrayNetwork
from quatrain.models.actor_critic.hosted.rollout import run_hosted_iteration
from quatrain.models.actor_critic.hosted.trainer import HostTrainer
from quatrain.models.actor_critic.ppo import metrics
from quatrain.models.actor_critic.ppo.learner import score_if_due, to_seed_state
from quatrain.models.actor_critic.ppo.state import State as State
from quatrain.models.actor_critic.ppo.state import first_state
from quatrain.models.actor_critic.train import SMALL
from quatrain.progress import Progress, by_seed

WEIGHTS = ("best/",)
to_arrays = packing.to_arrays


def headline(config: HostedActorCriticConfig) -> tuple[str, str]:
    return "return", "length"


def init_state(config: HostedActorCriticConfig, dataset: Dataset, seed: int) -> State:
    """Returns new networks, and environments before their first step, which are not made; each seed
    draws from a random sequence of its own.
    """
    space = dataset.interface.restored
    seeds = []
    for sequence in np.random.SeedSequence(seed).spawn(config.seeds):
        weights, environments, policy, order = sequence.spawn(4)
        network = seeded(lambda: networks.make(config, space), _number(weights))
        assert isinstance(network, ArrayNetwork)
        _set_scale(config, dataset, network)
        generators = generator_from_seed(policy), generator_from_seed(order)
        host = trainers.first_host_state(config, space, _number(environments), generators)
        seeds.append(first_state(network, None, (), host))
    return State.from_seeds(seeds)


def _number(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0])


def _set_scale(config: HostedActorCriticConfig, dataset: Dataset, network: ArrayNetwork) -> None:
    if config.network.observation_scale != "none":
        network.obs_mean.copy_(torch.tensor(dataset.train.obs_mean))
        network.obs_variance.copy_(torch.tensor(dataset.train.obs_variance))
        network.obs_count.fill_(config.collect.transitions)


def update(
    config: HostedActorCriticConfig, dataset: Dataset, state: State
) -> tuple[State, Mapping[str, np.ndarray]]:
    """Returns the state after one iteration of all seeds, and its metrics; the given state stays
    unchanged.

    Raises:
        TrainingDiverged: something is not finite.
        DataError: an environment raised.
    """
    (progress,) = _iterate(config, dataset, state, [1])
    return progress.state, progress.metrics


def train(
    config: HostedActorCriticConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains to `train.transitions`, from `state` if given; yields every `record_every` iterations.

    Raises:
        DatasetMismatch: the dataset was collected under another config.
        TrainingDiverged: something is not finite; raised before the iterations since the last yield
            are yielded.
        DataError: an environment cannot be made, raised, or does not repeat an episode.
    """
    check(config, dataset)
    if state is None:
        state = init_state(config, dataset, seed)
    yield from _iterate(config, dataset, state, config.train.counts(int(state.iterations[0])))


def _iterate(
    config: HostedActorCriticConfig, dataset: Dataset, state: State, counts: Sequence[int]
) -> Iterator[Progress]:
    """Runs these numbers of iterations, and yields after each number."""
    is_small = config.network.d <= SMALL
    with _trainers(config, state) as learners:
        for count in counts:
            with threads.single_threaded(is_small):
                entries = [[run_hosted_iteration(item) for item in learners] for _ in range(count)]
                validated = _validate_if_due(learners, dataset)
            seeds = [to_seed_state(item, (), trainers.to_host_state(item)) for item in learners]
            yield Progress(
                step=learners[0].iterations,
                state=State.from_seeds(seeds),
                metrics={**metrics.stack_entries(entries), **validated},
            )


@contextmanager
def _trainers(config: HostedActorCriticConfig, state: State) -> Iterator[list[HostTrainer]]:
    with ExitStack() as stack:
        learners = []
        for seed in state.seeds:
            learners.append(trainers.from_state(config, seed))
            stack.callback(learners[-1].envs.close)
        yield learners


def _validate_if_due(learners: Sequence[HostTrainer], dataset: Dataset) -> Mapping[str, np.ndarray]:
    scores = score_if_due(learners, lambda learner: (validate(learner, dataset),), 1)
    return by_seed({"validation_return": scores[..., 0]})


def validate(learner: HostTrainer, dataset: Dataset) -> float:
    """Returns the mean return, undiscounted, of the deterministic policy."""
    config = learner.config
    seed = int(dataset.train.validation_seed)
    act = deterministic_policy(learner.actor)
    return float(
        play_episodes(config.env, config.collect.validation_episodes, seed, act).returns.mean()
    )


def from_arrays(
    config: HostedActorCriticConfig, dataset: Dataset, arrays: dict[str, np.ndarray]
) -> State:
    """Returns the state that these arrays hold, without an environment; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)
