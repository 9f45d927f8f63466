"""an environment that a user or a library brings as PPO's: its dataset, what is seen of it, steps,
validation
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float32, Float64, Int64, Shaped, UInt8
from torch import Tensor

from quatrain.envs.host.envs import (
    Act,
    EnvStates,
    HostEnvs,
    check_interface,
    empty_states,
    play_episodes,
)
from quatrain.envs.host.references import measure, random_policy
from quatrain.envs.host.spaces import Interface, SavedInterface
from quatrain.errors import DataError, DatasetMismatch
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.replay.rollouts import Graphs, Rollout, Spec, Stepped

HEADLINE = ("return", "length")
VALIDATED = ("validation_return",)
# Environments that step together to collect.
NUM_ENVS = 8
# Questions of an example request.
EXAMPLES = 3


class Training(NamedTuple):
    """Holds what training reads: mean and variance of observations, less images and masks, and the
    seed of the episodes to evaluate on.
    """

    obs_mean: Float64[np.ndarray, " obs"]
    obs_variance: Float64[np.ndarray, " obs"]
    validation_seed: Int64[np.ndarray, ""]


class HeldOut(NamedTuple):
    """Holds the seed of episodes that are never trained on, and what the first of them begin
    with.
    """

    seed: Int64[np.ndarray, ""]
    first_obs: Shaped[np.ndarray, "example obs"]


class Dataset(NamedTuple):
    """Holds what training and evaluation read, and the sizes of the environment."""

    train: Training
    held_out: HeldOut
    interface: SavedInterface


def collect(config: ActorCriticUserEnvConfig, seed: int) -> Dataset:
    """Measures observations under a random policy, and begins held-out episodes.

    Raises:
        DataError: the environment cannot be made, or has actions or observations that cannot be
            used.
    """
    purposes = np.random.SeedSequence(seed).spawn(6)
    # Held-out episodes differ from those of the validation by their own entropy.
    random_seed, held_out_seed, validation_seed = (
        int(purpose.generate_state(1)[0])
        for purpose in (purposes[3], *purposes[5:], *purposes[5].spawn(1))
    )
    with closing(HostEnvs(config.env, NUM_ENVS, random_seed)) as envs:
        space = checked(config, envs.interface)
        act = random_policy(space, np.random.default_rng(purposes[0]))
        moments = measure(envs, act, -(-config.collect.transitions // NUM_ENVS))
    with closing(HostEnvs(config.env, EXAMPLES, held_out_seed)) as envs:
        first_obs = envs.obs[:, 0]
    return Dataset(
        Training(*moments, np.array(validation_seed)),
        HeldOut(np.array(held_out_seed), first_obs),
        interface=space.saved,
    )


def checked(config: ActorCriticUserEnvConfig, space: Interface) -> Interface:
    """Returns the sizes of observations and actions.

    Raises:
        DataError: names what cannot be learnt.
    """
    for place, (low, high) in enumerate(zip(space.action_low, space.action_high, strict=True)):
        if not low < high:
            raise DataError(
                f"env {config.env.name}: number {place} of the action is between {low:g} and "
                f"{high:g}; wrap the environment so that an action has only numbers to choose"
            )
    return space


# Checks.


def check(config: ActorCriticUserEnvConfig, dataset: Dataset) -> None:
    """Makes the environment, and checks sizes, and that numbers are finite.

    Raises:
        DatasetMismatch: this config cannot have collected the dataset.
        DataError: the environment cannot be made.
    """
    check_interface(config.env, dataset.interface)
    space = checked(config, dataset.interface.restored)
    begin, end = space.vector
    shape = (end - begin,)
    for name in ("obs_mean", "obs_variance"):
        array = getattr(dataset.train, name)
        if array.shape != shape:
            raise DatasetMismatch(
                f"actor_critic: {name} has the shape {array.shape}, not {shape}: the dataset was "
                "collected under another config; collect it again"
            )
        if not np.isfinite(array).all():
            raise DatasetMismatch(f"actor_critic: {name} is not finite; collect the dataset again")


# Running environments.


class UserEnvState(NamedTuple):
    """Holds what changes beside the network: running episodes (`envs.EnvStates`), generators.

    seed: of the environments. running: return and length of running episodes so far.
    episode_means: of those that ended in the last rollout in which any ended.
    """

    seed: Int64[Tensor, ""]
    episode: Int64[Tensor, " env"]
    elapsed: Int64[Tensor, " env"]
    actions: Shaped[Tensor, "env step agent *action"]
    obs: Shaped[Tensor, "env agent obs"]
    running: Float32[Tensor, "env 2"]
    episode_means: Float32[Tensor, "2"]
    policy: UInt8[Tensor, " state"]
    order: UInt8[Tensor, " state"]


def spec_of(config: ActorCriticUserEnvConfig, dataset: Dataset) -> Spec:
    return spec_in(dataset.interface.restored)


def spec_in(space: Interface) -> Spec:
    low, high = space.action_range
    return Spec(
        cells=0,
        node_features=0,
        graph_features=space.observation_size,
        action_low=low,
        action_high=high,
        action_counts=space.action_counts,
        components=1,
        image=space.image,
        mask=space.observation_size - space.vector[1],
        graph_dtype=torch.from_numpy(np.zeros(0, space.observation_dtype)).dtype,
    )


def begin_scale(config: ActorCriticUserEnvConfig, dataset: Dataset, network: Any) -> tuple[()]:
    """Sets the network's own scale of observations to that of the dataset, in place."""
    if config.network.observation_scale != "none":
        network.obs_mean.copy_(torch.tensor(dataset.train.obs_mean, dtype=torch.float32))
        network.obs_variance.copy_(torch.tensor(dataset.train.obs_variance, dtype=torch.float32))
        network.obs_count.fill_(config.collect.transitions)
    return ()


def split(sequence: np.random.SeedSequence) -> tuple[np.random.SeedSequence, ...]:
    """Returns the random sequences of weights, environments, policy and order of minibatches."""
    return tuple(sequence.spawn(4))


def first_state(
    config: ActorCriticUserEnvConfig,
    dataset: Dataset,
    sequence: np.random.SeedSequence,
    **generators: UInt8[Tensor, " state"],
) -> UserEnvState:
    """Returns the state before the first step of environments, which are not made; generators:
    states of the learner's.
    """
    count = config.train.num_envs
    seed = int(sequence.generate_state(1)[0])
    return UserEnvState(
        **_episodes(seed, empty_states(dataset.interface.restored, count)),
        running=torch.zeros(count, 2, device="cpu"),
        episode_means=torch.zeros(2, device="cpu"),
        **generators,
    )


def _episodes(seed: int, states: EnvStates) -> dict[str, Tensor]:
    columns = {"seed": seed, **states._asdict()}
    return {name: _on_host(column) for name, column in columns.items()}


def _on_host(values: object) -> Tensor:
    return torch.tensor(values, device="cpu")


def make_envs(
    config: ActorCriticUserEnvConfig, dataset: Dataset, scale: tuple[()], state: UserEnvState
) -> "UserEnvs":
    return UserEnvs(config, state)


class UserEnvs:
    """Steps environments on the host, and sums over episodes (`replay.rollouts.Envs`)."""

    def __init__(self, config: ActorCriticUserEnvConfig, state: UserEnvState) -> None:
        """Makes the environments, and plays their running episodes again.

        Raises:
            DataError: the environment cannot be made, or does not repeat its running episodes.
        """
        self.weights = torch.ones(1)
        episodes = (getattr(state, name) for name in EnvStates._fields)
        with ExitStack() as closing_if_refused:
            self.host = HostEnvs(config.env, config.train.num_envs, int(state.seed))
            closing_if_refused.callback(self.host.close)
            self.host.restore(EnvStates(*map(np.asarray, episodes)))
            closing_if_refused.pop_all()
        self._running = state.running.numpy().copy()
        self._episode_means = state.episode_means.numpy().copy()
        self._ended: list[Float32[np.ndarray, "episode 2"]] = []

    def observe(self) -> Graphs:
        return to_graphs(self.host.obs[:, 0])

    def step(self, action: Shaped[Tensor, "env *action"]) -> Stepped:
        turn = self.host.step(action.numpy(force=True)[:, None])
        self._running += np.stack([turn.rewards[:, 0], np.ones_like(turn.rewards[:, 0])], 1)
        over = turn.terminated | turn.truncated
        self._ended.append(self._running[over])
        self._running[over] = 0
        return Stepped(
            components=torch.tensor(turn.rewards),
            terminated=torch.tensor(turn.terminated),
            truncated=torch.tensor(turn.truncated),
            final=turn.next_obs[turn.truncated, 0],
        )

    def observe_final(self, finals: Sequence[np.ndarray], truncated: Tensor) -> Graphs | None:  # noqa: ARG002
        obs = np.concatenate(finals)
        return to_graphs(obs) if len(obs) else None

    def end_rollout(self, rollout: Rollout, action: Tensor, iteration: int) -> dict[str, float]:  # noqa: ARG002
        """Returns metrics of episodes; the host refuses rewards that are not finite."""
        episodes = np.concatenate(self._ended)
        self._ended = []
        if len(episodes):
            self._episode_means = episodes.mean(0)
        mean_return, length = self._episode_means.tolist()
        return {"return": mean_return, "length": length, "episodes": float(len(episodes))}

    def save(self, policy: Tensor, order: Tensor) -> UserEnvState:
        return UserEnvState(
            **_episodes(self.host.seed, self.host.states),
            running=_on_host(self._running),
            episode_means=_on_host(self._episode_means),
            policy=policy,
            order=order,
        )

    def close(self) -> None:
        self.host.close()


def to_graphs(obs: Shaped[np.ndarray, "env obs"]) -> Graphs:
    """Returns observations as graphs without cells."""
    envs = len(obs)
    return Graphs(
        node=torch.zeros(envs, 0, 0),
        graph=torch.tensor(obs),
        parent=torch.zeros(envs, 0, dtype=torch.int64),
        mask=torch.zeros(envs, 0, dtype=torch.bool),
    )


def playing(act: Callable[[Graphs], Tensor]) -> Act:
    """Returns a policy of the only agent of environments on the host."""
    return lambda obs: act(to_graphs(obs[:, 0])).numpy(force=True)[:, None]


def validate(learner: Any, dataset: Dataset) -> tuple[float]:
    """Returns the mean return, undiscounted, of the deterministic policy."""
    config = learner.config
    count = config.validation.count(dataset.interface.restored.max_episode_steps)
    seed = int(dataset.train.validation_seed)
    played = play_episodes(config.env, count, seed, partial(playing, learner.actor.act))
    return (float(played.returns.mean()),)


def warn_if_failing(learners: Sequence[Any], scores: Float[np.ndarray, "learner 1"]) -> None:
    """Says nothing: nobody knows which return is a failure."""
