"""A user's environment: random walks, stepped in Python, or those of a file; states are what they
observe
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Bool, Float32, Integer, Shaped

from quatrain.envs.host.envs import HostEnvs, check_interface
from quatrain.envs.host.rows import AgentRows
from quatrain.envs.host.spaces import (
    Interface,
    SavedInterface,
    batch_of,
    describe,
    draw_actions,
    reader,
)
from quatrain.envs.host.user_code import AGENT, interface_of, make
from quatrain.errors import DataError
from quatrain.models.allo.collect import Encode
from quatrain.models.allo.config import COUNTED_STATES, AlloUserEnvConfig, UserEnv
from quatrain.replay.episodes.trajectories import (
    Episodes,
    Walks,
    empty_episodes,
    from_walks,
    smallest_type,
)
from quatrain.storage.recordings import read_recording

INPUT = "observations"
CONNECT = (
    "give every episode the same layout (allo.env.kwargs or a wrapper), "
    "or set or lower allo.env.bins"
)
LARGEST = float(np.finfo(np.float32).max)
# Purposes of random numbers.
TRAIN, HELD_OUT = range(2)


class StateTable(NamedTuple):
    """Holds the mean observation of each state, and mean and deviation of the training walks."""

    observations: Float32[np.ndarray, "states obs"]
    mean: Float32[np.ndarray, " obs"]
    std: Float32[np.ndarray, " obs"]


class Dataset(NamedTuple):
    """Holds walks for training, independent held-out walks (may be empty), their states, and the
    sizes of the environment.
    """

    train: Episodes
    held_out: Episodes
    table: StateTable
    interface: SavedInterface

    @property
    def coords(self) -> Float32[np.ndarray, "states obs"]:
        return self.table.observations

    @property
    def next_state(self) -> None:
        return None


class Observed(NamedTuple):
    """Holds the observations of parallel walks before and after each step, and how each ended."""

    obs: Float32[np.ndarray, "env steps obs"]
    next_obs: Float32[np.ndarray, "env steps obs"]
    terminated: Bool[np.ndarray, "env steps"]
    truncated: Bool[np.ndarray, "env steps"]


def collect(config: AlloUserEnvConfig, seed: int) -> Dataset:
    """Walks `num_envs` environments for `steps_per_env` random steps, and held-out ones beside; or
    reads a recording, whose held-out episodes do not depend on the seed.

    The states are those that any of the walks visits.
    """
    train, held_out, interface = _record(config) if config.env.path else _walks(config, seed)
    observed = (train.obs, train.next_obs, held_out.obs, held_out.next_obs)
    parts = [part.reshape(-1, part.shape[-1]) for part in observed]
    rows = np.concatenate(parts)
    keys, numbers = np.unique(_state_keys(config.env, rows, parts[0]), axis=0, return_inverse=True)
    numbers = numbers.ravel()
    _check_count(config, len(keys))
    states = numbers.astype(smallest_type(len(keys) - 1))
    ends = np.cumsum([len(part) for part in parts])
    obs, next_obs, held_obs, held_next_obs = np.split(states, ends[:-1])
    return Dataset(
        train=_episodes(train, obs, next_obs),
        held_out=_episodes(held_out, held_obs, held_next_obs),
        table=StateTable(
            observations=_means(rows, numbers) if config.env.bins else keys.astype(np.float32),
            mean=train.obs.mean((0, 1)),
            # Rounding gives a number that never changes a deviation, too.
            std=np.where(np.ptp(train.obs, (0, 1)) > 0, train.obs.std((0, 1)), np.float32(0)),
        ),
        interface=interface.saved,
    )


def _walks(config: AlloUserEnvConfig, seed: int) -> tuple[Observed, Observed, Interface]:
    train, interface = _walk(config, config.collect.num_envs, seed, TRAIN)
    held_out = Observed(*(column[:0] for column in train))
    if config.collect.held_out_envs:
        held_out, _ = _walk(config, config.collect.held_out_envs, seed, HELD_OUT)
    return train, held_out, interface


def _record(config: AlloUserEnvConfig) -> tuple[Observed, Observed, Interface]:
    """Returns the steps of a recording: every n-th episode is held out, or the end of the only
    one. As no environment limits them, the interface tells how many there are.
    """
    observations, is_last = read_recording(str(config.env.path), config.env.columns)
    lengths = np.diff(np.flatnonzero(is_last), prepend=-1)
    fraction = config.collect.held_out_fraction
    if len(lengths) == 1 and fraction:
        border = round((1 - fraction) * lengths[0])
        lengths = np.array([border, lengths[0] - border])
        is_last[border - 1] = True
    count = max(1, round(fraction * len(lengths))) if fraction else 0
    episodes = np.linspace(0, len(lengths), count + 2)[1:-1].astype(int)
    is_held_out = np.repeat(np.isin(np.arange(len(lengths)), episodes), lengths)
    train, held_out = (
        _steps(observations, is_last, np.flatnonzero(~is_last & part))
        for part in (~is_held_out, is_held_out)
    )
    if not train.truncated.size or (fraction and not held_out.truncated.size):
        raise DataError(
            f"{config.env.name} has too few steps to learn from some and hold out others; record "
            "more, or longer episodes"
        )
    space = Box(-np.inf, np.inf, observations.shape[1:])
    return train, held_out, describe({AGENT: (space, Discrete(1))}, int((~is_last).sum()))


def _steps(
    observations: Float32[np.ndarray, "row obs"],
    is_last: Bool[np.ndarray, " row"],
    rows: Integer[np.ndarray, " step"],
) -> Observed:
    """Returns the steps that begin at these rows, as one walk."""
    return Observed(
        obs=observations[None, rows],
        next_obs=observations[None, rows + 1],
        terminated=np.zeros((1, len(rows)), bool),
        truncated=is_last[None, rows + 1],
    )


def _walk(
    config: AlloUserEnvConfig, num_envs: int, seed: int, purpose: int
) -> tuple[Observed, Interface]:
    env_seed, action_seed = np.random.SeedSequence((seed, purpose)).generate_state(2)
    draws = np.random.default_rng(action_seed)
    with closing(HostEnvs(config.env, num_envs, int(env_seed))) as envs:
        space = envs.interface
        turns = [
            envs.step(draw_actions(space, draws, envs.obs.shape[:2], envs.obs))
            for _ in range(config.collect.steps_per_env)
        ]
    # A mask is no part of a state.
    shown = slice(space.vector[1])
    walks = Observed(
        obs=np.stack([turn.obs[:, 0, shown] for turn in turns], 1, dtype=np.float32),
        next_obs=np.stack([turn.next_obs[:, 0, shown] for turn in turns], 1, dtype=np.float32),
        terminated=np.stack([turn.terminated for turn in turns], 1),
        truncated=np.stack([turn.truncated for turn in turns], 1),
    )
    return walks, space


def _state_keys(
    env: UserEnv, rows: Float32[np.ndarray, "row obs"], train: Float32[np.ndarray, "train_row obs"]
) -> Shaped[np.ndarray, "row obs"]:
    """Returns a row for each observation, equal for those of one state.

    With `bins` it is the cell in the box that the training walks observed, at the nearest end of
    each axis for those outside.
    """
    if env.bins is None:
        return rows
    width = np.ptp(train, axis=0)
    place = (rows - train.min(0)) / np.where(width > 0, width, 1) * env.bins
    return np.clip(np.floor(place), 0, env.bins - 1).astype(np.int32)


def _means(
    rows: Float32[np.ndarray, "row obs"], states: Integer[np.ndarray, " row"]
) -> Float32[np.ndarray, "states obs"]:
    """Returns the mean observation of each state."""
    sums = np.stack([np.bincount(states, column) for column in rows.T], 1)
    return (sums / np.bincount(states)[:, None]).astype(np.float32)


def _check_count(config: AlloUserEnvConfig, states: int) -> None:
    """Checks that there are d states, and of cells not more than can be counted.

    Raises:
        DataError: names the number and the key to change.
    """
    if config.env.bins is not None and states > COUNTED_STATES:
        raise DataError(
            f"the walks in {config.env.name} visit {states:,} cells, and at most "
            f"{COUNTED_STATES:,} are counted; lower allo.env.bins, or set it to null: nothing is "
            "counted then"
        )
    if states < config.network.d:
        raise DataError(
            f"the walks in {config.env.name} visit {states} states, fewer than the "
            f"{config.network.d} eigenvectors of allo.network.d; lower d or raise allo.env.bins"
        )


def is_counted(config: AlloUserEnvConfig, dataset: Dataset) -> bool:
    """Returns whether states are counted: cells always are, observations where there are few and
    they repeat. Observations that differ at each step would make walks that nothing connects.
    """
    states = len(dataset.coords)
    visits = len(dataset.train.state) + len(dataset.held_out.state)
    return config.env.bins is not None or (states <= COUNTED_STATES and 2 * states <= visits)


def _episodes(
    walk: Observed, state: Integer[np.ndarray, " row"], next_state: Integer[np.ndarray, " row"]
) -> Episodes:
    if not walk.terminated.size:
        return empty_episodes()
    shape = walk.terminated.shape
    states = (state.reshape(shape), next_state.reshape(shape))
    return from_walks(Walks(*states, walk.terminated, walk.truncated))


def check(config: AlloUserEnvConfig, dataset: Dataset) -> None:
    """Makes the environment, and raises unless the dataset can be of it; a recording says nothing
    of one.
    """
    if config.env.path is None:
        check_interface(config.env, dataset.interface)


def input_constants(
    config: AlloUserEnvConfig, dataset: Dataset, seed: int
) -> Float32[np.ndarray, "2 obs"]:
    """Returns mean and deviation of observations."""
    return np.stack([dataset.table.mean, dataset.table.std])


def inputs(
    config: AlloUserEnvConfig, dataset: Dataset, constants: Float32[np.ndarray, "2 obs"]
) -> Float32[np.ndarray, "states obs"]:
    return standardise(dataset.coords, constants)


def standardise(
    observations: Float32[np.ndarray, "*batch obs"], constants: Float32[np.ndarray, "2 obs"]
) -> Float32[np.ndarray, "*batch obs"]:
    """Returns observations in units of deviations; an axis that never changes stays 0."""
    mean, std = constants
    return (observations - mean) / np.where(std > 0, std, 1)


def encoder_inputs(
    config: AlloUserEnvConfig, constants: Float32[np.ndarray, "2 obs"]
) -> Callable[[Any], Float32[np.ndarray, "*batch obs"]]:
    """Returns what reads, as the walks were read, and scales one observation or a batch of them: of
    the environment, which is made for its spaces; of a recording rows of numbers.

    It raises DataError, a ValueError, for others.
    """
    space, read = _reader(config, constants.shape[1])

    def inputs_of(observations: Any) -> Float32[np.ndarray, "*batch obs"]:
        observed, is_single = batch_of(space, observations)
        rows = np.array([read(each) for each in observed], np.float32)
        rows = rows.reshape(len(observed), constants.shape[1])
        return standardise(rows[0] if is_single else rows, constants)

    return inputs_of


def _reader(config: AlloUserEnvConfig, size: int) -> tuple[Any, Callable[[Any], np.ndarray]]:
    """Returns the space of observations, and what reads one of them.

    Raises:
        DataError: the environment cannot be made, or shows another number of values.
    """
    if config.env.path:
        space = Box(-np.inf, np.inf, (size,))
        return space, reader("the observation", space)
    with closing(make(config.env)) as env:
        interface = interface_of(config.env, env, has_mask=False)
        agent = AgentRows(interface, env, AGENT, has_mask=False)
        space = env.observation_space(AGENT)
    shown = interface.vector[1]
    if shown != size:
        raise DataError(
            f"env {config.env.name} shows {shown}, the encoder learned of {size} numbers; "
            "train again"
        )
    return space, lambda value: agent.read(value, None, has_ended=True)[:shown]


# Serving.


def input_sizes(
    config: AlloUserEnvConfig, arrays: dict[str, np.ndarray]
) -> tuple[tuple[int, int], int]:
    """Returns the shape of the constants and the number of inputs, which only the arrays tell."""
    size = arrays["input_constants"].size // 2 if "input_constants" in arrays else 0
    return (2, size), size


def ask(dataset: Dataset, states: list[int]) -> Float32[np.ndarray, "questions obs"]:
    """Returns observations of states."""
    return dataset.coords[states]


def input_limits(config: AlloUserEnvConfig, constants: Float32[np.ndarray, "2 obs"]) -> Any:
    """Returns dtype, axes, least and most of what can be asked."""
    return np.float32, constants.shape[1:], -LARGEST, LARGEST


def answering(
    config: AlloUserEnvConfig, constants: Float32[np.ndarray, "2 obs"], encode: Encode
) -> Callable[[Float32[np.ndarray, "questions obs"]], dict[str, np.ndarray]]:
    """Returns what encodes observations."""
    return lambda observations: {"eigenvectors": encode(standardise(observations, constants))}
