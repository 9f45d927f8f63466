"""config, seed -> transitions of a random policy in a user's environment, and held-out episodes"""

from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int, Int64

from quatrain.envs.host.envs import HostEnvs, check_interface
from quatrain.envs.host.spaces import Interface, SavedInterface
from quatrain.errors import DataError, DatasetMismatch
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.replay.frames.ring import AnyArray, Transitions

# Purposes of the randomness of a dataset.
ENVS, ACTIONS, HELD_OUT = range(3)
# Actions and turns of the replay are small integers.
MAX_ACTIONS = np.iinfo(np.int8).max
MAX_TURN = np.iinfo(np.int16).max
# Smallest standard deviation by which observations are divided.
LEAST_DEVIATION = 1e-6


class HeldOut(NamedTuple):
    """Holds what repeats the held-out episodes: the seed of their envs, and how they begin."""

    seed: Int64[np.ndarray, "1"]
    obs: Float32[np.ndarray, "env agent obs"]


class Scale(NamedTuple):
    """Holds how observations become inputs: (obs - mean) / deviation."""

    mean: Float32[AnyArray, "*seed obs"]
    deviation: Float32[AnyArray, "*seed obs"]


class Dataset(NamedTuple):
    """Holds the prefill of each seed's replay (leading axis seed), the held-out episodes, and the
    sizes of the environment.

    Observations are not scaled. The last turn of the prefill counts as final, because training
    begins with new episodes.
    """

    train: Transitions
    held_out: HeldOut
    interface: SavedInterface


class Final(NamedTuple):
    """Holds the final observations that come next, of envs whose episode was truncated.

    turn: number of the turn in the episode; 0 where no final observation comes next.
    """

    turn: Int64[np.ndarray, "*seed env"]
    obs: Float32[np.ndarray, "*seed env agent obs"]


class ReplayEnvs:
    """Steps environments for a replay: a truncated episode has a turn more, without effect, for its
    final observation.
    """

    def __init__(self, envs: HostEnvs) -> None:
        self.envs = envs
        self.final = Final(np.zeros(len(envs.obs), np.int64), np.zeros_like(envs.obs))

    @property
    def obs(self) -> Float32[np.ndarray, "env agent obs"]:
        """Returns what the agents observe in the next turn."""
        is_final = self.final.turn > 0
        return np.where(is_final[:, None, None], self.final.obs, self.envs.obs)

    def step(self, actions: Int[np.ndarray, "env agent"]) -> Transitions:
        """Steps all envs, in place; returns the turn in the columns that the replay stores, without
        their first axis.
        """
        obs = self.obs
        is_final = self.final.turn > 0
        number = np.where(is_final, self.final.turn, self.envs.elapsed)
        turn = self.envs.step(actions, active=~is_final)
        self.final = Final(np.where(turn.truncated, number + 1, 0), turn.next_obs)
        return Transitions(
            frames=obs.swapaxes(0, 1),
            actions=turn.actions.T.astype(np.int8),
            rewards=turn.rewards.T,
            terminated=turn.terminated,
            final=is_final,
            turn=np.minimum(number, MAX_TURN).astype(np.int16),
        )

    def close(self) -> None:
        self.envs.close()


def checked(config: HostedIqnConfig, sizes: Interface) -> Interface:
    """Returns the sizes of the environment.

    Raises:
        DataError: its actions are not few and discrete.
    """
    if not 1 <= sizes.action_count <= MAX_ACTIONS:
        actions = f"{sizes.action_count} actions" if sizes.action_count else "continuous actions"
        raise DataError(
            f"env {config.env.name} has {actions}; iqn needs Discrete ones, at most {MAX_ACTIONS}: "
            "wrap the environment, or train actor_critic in it"
        )
    return sizes


def dataset_type(config: HostedIqnConfig) -> type[Dataset]:
    return Dataset


def collect(config: HostedIqnConfig, seed: int) -> Dataset:
    """Plays `collect.turns` turns of a uniform random policy per env, and begins held-out
    episodes.
    """
    train = prefill(config, seed)
    held_out_seed = draw_seed(seed, HELD_OUT)
    with closing(HostEnvs(config.env, config.collect.held_out_worlds, held_out_seed)) as envs:
        held_out = HeldOut(np.array([held_out_seed]), envs.obs)
        return Dataset(train, held_out, envs.interface.saved)


def draw_seed(*entropy: int) -> int:
    """Returns a seed that depends on all these numbers."""
    return int(np.random.SeedSequence(entropy).generate_state(1)[0])


def prefill(config: HostedIqnConfig, seed: int) -> Transitions:
    """Returns transitions of a uniform random policy, (seed, turn, ...)."""
    seeds = []
    for learner in range(config.seeds):
        rng = np.random.default_rng((seed, ACTIONS, learner))
        envs_seed = draw_seed(seed, ENVS, learner)
        with closing(ReplayEnvs(HostEnvs(config.env, config.env.worlds, envs_seed))) as envs:
            count = checked(config, envs.envs.interface).action_count
            turns = [
                envs.step(rng.integers(count, size=envs.obs.shape[:2]))
                for _ in range(config.collect.turns)
            ]
        seeds.append(stack(turns))
    transitions = stack(seeds)
    transitions.final[:, -1] |= ~transitions.terminated[:, -1]
    return transitions


def stack(items: Sequence[Transitions], axis: int = 0) -> Transitions:
    return Transitions(*(np.stack(column, axis) for column in zip(*items, strict=True)))


def scale_of(config: HostedIqnConfig, train: Transitions) -> Scale:
    """Returns the scale of each seed, from its prefill or neutral."""
    frames = np.asarray(train.frames, np.float64)
    mean, deviation = frames.mean((1, 2, 3)), frames.std((1, 2, 3))
    if config.collect.observation_norm == "none":
        mean, deviation = np.zeros_like(mean), np.ones_like(deviation)
    # A number that never changed stays as it is, less its mean.
    deviation[deviation < LEAST_DEVIATION] = 1
    return Scale(mean.astype(np.float32), deviation.astype(np.float32))


def scaled(scale: Scale, obs: Float32[AnyArray, "*any obs"]) -> Float32[AnyArray, "*any obs"]:
    """Returns inputs of observations; the scale is that of one seed."""
    return (obs - scale.mean) / scale.deviation


def check(config: HostedIqnConfig, dataset: Dataset) -> None:
    """Makes the environment, and raises if this config cannot have produced the dataset.

    Raises:
        DatasetMismatch: a size, or a value that is impossible in this environment.
        DataError: the environment cannot be made, or iqn cannot act in it.
    """
    check_interface(config.env, dataset.interface)
    sizes = checked(config, dataset.interface.restored)
    seeds, worlds, turns = config.seeds, config.env.worlds, config.collect.turns
    agents, size = len(sizes.agents), sizes.observation_size
    per_agent = (seeds, turns, agents, worlds)
    per_env = (seeds, turns, worlds)
    expected = {
        "frames": (*per_agent, size),
        "actions": per_agent,
        "rewards": per_agent,
        "terminated": per_env,
        "final": per_env,
        "turn": per_env,
        "held_out/seed": (1,),
        "held_out/obs": (config.collect.held_out_worlds, agents, size),
    }
    arrays = (*dataset.train, *dataset.held_out)
    problems = [
        f"{name} have the shape {array.shape}, not {shape}"
        for (name, shape), array in zip(expected.items(), arrays, strict=True)
        if array.shape != shape
    ]
    actions = dataset.train.actions
    if not problems and not 0 <= actions.min() <= actions.max() < sizes.action_count:
        problems = [f"it has actions outside 0..{sizes.action_count - 1}"]
    if problems:
        raise DatasetMismatch(
            f"the dataset was not collected in {config.env.name}: {problems[0]}; run `dvc repro`"
        )
