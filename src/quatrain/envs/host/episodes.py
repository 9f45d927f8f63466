"""a policy, environments of a seed -> the returns of whole episodes"""

from collections.abc import Callable
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


def play(config: HostEnv, episodes: int, seed: int, act: Act) -> Episodes:
    """Plays so many episodes; the seed decides how they begin.

    Each environment plays a number of episodes that is fixed before: the first ones to end would
    be the shortest.

    Raises:
        DataError: the environment cannot be made, or raised.
    """
    num_envs = min(episodes, MOST_ENVS)
    quota = np.full(num_envs, episodes // num_envs)
    quota[: episodes % num_envs] += 1
    envs = HostEnvs(config, num_envs, seed)
    try:
        return _play(envs, quota, act)
    finally:
        envs.close()


def _play(envs: HostEnvs, quota: Int64[np.ndarray, " env"], act: Act) -> Episodes:
    returns = np.zeros((len(quota), len(envs.interface.agents)))
    lengths = np.zeros(len(quota), np.int64)
    played = np.zeros(len(quota), np.int64)
    ended: list[tuple[int, int, np.ndarray, int, bool]] = []
    while (played < quota).any():
        turn = envs.step(act(envs.obs))
        returns += turn.rewards
        lengths += 1
        for env in np.flatnonzero(turn.terminated | turn.truncated):
            if played[env] < quota[env]:
                end = returns[env].copy(), int(lengths[env]), bool(turn.terminated[env])
                ended.append((int(env), int(played[env]), *end))
            played[env] += 1
            returns[env] = 0
            lengths[env] = 0
    _, _, *columns = zip(*sorted(ended, key=lambda row: row[:2]), strict=True)
    return Episodes(*map(np.array, columns))
