"""a policy, environments -> the returns of whole episodes"""

from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64, Shaped

from quatrain.envs.host.config import HostEnv
from quatrain.envs.host.envs import HostEnvs

# Environments that step together; more cost memory and time to make.
MOST_ENVS = 32

Act = Callable[[Float32[np.ndarray, "env agent obs"]], Shaped[np.ndarray, "env agent *action"]]


class Episodes(NamedTuple):
    """Holds one row per episode; returns are not discounted."""

    returns: Float64[np.ndarray, "episode agent"]
    lengths: Int64[np.ndarray, " episode"]
    terminated: Bool[np.ndarray, " episode"]

    @property
    def mean_returns(self) -> Float64[np.ndarray, " episode"]:
        """Returns the mean over agents, which share their episodes."""
        return self.returns.mean(1)


def play_episodes(config: HostEnv, episodes: int, seed: int, act: Act) -> Episodes:
    """Plays so many episodes in environments of their own; the seed decides how they begin.

    Raises:
        DataError: the environment cannot be made, or raised.
    """
    num_envs = min(episodes, MOST_ENVS)
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    with closing(HostEnvs(config, num_envs, seed)) as envs:
        return play(envs, act, quota)


def play(envs: HostEnvs, act: Act, quota: Int64[np.ndarray, " env"] | None = None) -> Episodes:
    """Plays the first episodes of each environment, in place; returns them by environment.

    quota: how many each plays, one if None. It is fixed before: the first episodes to end would be
    the shortest. An environment that has played its own waits for the others.

    Raises:
        DataError: an environment raised, or returned what its spaces do not allow.
    """
    envs.restart()
    returns = np.zeros(envs.obs.shape[:2])
    lengths = np.zeros(len(returns), np.int64)
    left = np.ones(len(returns), np.int64) if quota is None else quota.copy()
    ended: list[tuple[int, np.ndarray, int, bool]] = []
    while (left > 0).any():
        turn = envs.step(act(envs.obs), left > 0)
        returns += turn.rewards
        lengths += left > 0
        for env in np.flatnonzero(turn.terminated | turn.truncated):
            ended.append(
                (int(env), returns[env].copy(), int(lengths[env]), bool(turn.terminated[env]))
            )
            left[env] -= 1
            returns[env] = 0
            lengths[env] = 0
    _, *columns = zip(*sorted(ended, key=lambda row: row[0]), strict=True)
    return Episodes(*map(np.array, columns))
