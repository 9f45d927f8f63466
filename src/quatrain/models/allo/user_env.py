"""A user's environment: random walks, stepped in Python, or those of a file; states are what they
observe
"""

from collections.abc import Callable
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box, Discrete
from jaxtyping import Bool, Float32, Integer, Shaped

from quatrain.envs.host.envs import HostEnvs, Transition, check_interface
from quatrain.envs.host.spaces import (
    LARGEST,
    Interface,
    SavedInterface,
    batch_of,
    describe,
    draw_actions,
    reader,
)
from quatrain.errors import DataError
from quatrain.models.allo.collect import Encode, Served
from quatrain.models.allo.config import COUNTED_STATES
from quatrain.models.allo.config import AlloUserEnvConfig as Config
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


def collect(config: Config, seed: int) -> Dataset:
    """Walks `num_envs` environments for `steps_per_env` random steps, and held-out ones beside; or
    reads a recording, whose held-out episodes do not depend on the seed.

    The states are those that any of the walks visits.
    """
    if config.env.is_recorded:
        train, held_out, interface = _recorded(config)
    else:
        train, interface = _walk(config, config.collect.num_envs, seed, TRAIN)
        held_out = Observed(*(column[:0] for column in train))
        if config.collect.held_out_envs:
            held_out, _ = _walk(config, config.collect.held_out_envs, seed, HELD_OUT)
    observed = (train.obs, train.next_obs, held_out.obs, held_out.next_obs)
    rows = np.concatenate([part.reshape(-1, part.shape[-1]) for part in observed])
    shown = rows[: train.terminated.size]
    keys, numbers = np.unique(_state_keys(config, rows, shown), axis=0, return_inverse=True)
    numbers = numbers.ravel()
    _check_count(config, len(keys))
    observations = keys.astype(np.float32)
    if config.env.bins:
        sums = np.stack([np.bincount(numbers, column) for column in rows.T], 1)
        observations = (sums / np.bincount(numbers)[:, None]).astype(np.float32)
    states = numbers.astype(smallest_type(len(keys) - 1))
    ends = np.cumsum([part[..., 0].size for part in observed])
    places = np.split(states, ends[:-1])
    return Dataset(
        train=_episodes(train, *places[:2]),
        held_out=_episodes(held_out, *places[2:]),
        table=StateTable(
            observations=observations,
            mean=train.obs.mean((0, 1)),
            # Rounding gives a number that never changes a deviation, too.
            std=np.where(np.ptp(train.obs, (0, 1)) > 0, train.obs.std((0, 1)), np.float32(0)),
        ),
        interface=interface.saved,
    )


def _recorded(config: Config) -> tuple[Observed, Observed, Interface]:
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
    parts = [np.flatnonzero(~is_last & part)[None] for part in (~is_held_out, is_held_out)]
    if not parts[0].size or (fraction and not parts[1].size):
        raise DataError(
            f"{config.env.name} has too few steps to learn from some and hold out others; record "
            "more, or longer episodes"
        )
    train, held_out = (
        Observed(observations[rows], observations[rows + 1], rows < 0, is_last[rows + 1])
        for rows in parts
    )
    space = Box(-np.inf, np.inf, observations.shape[1:])
    return train, held_out, describe({"recording": (space, Discrete(1))}, int((~is_last).sum()))


def _walk(config: Config, num_envs: int, seed: int, purpose: int) -> tuple[Observed, Interface]:
    env_seed, action_seed = np.random.SeedSequence((seed, purpose)).generate_state(2)
    draws = np.random.default_rng(action_seed)
    with closing(HostEnvs(config.env, num_envs, int(env_seed))) as envs:
        space = envs.interface
        turns = [
            envs.step(draw_actions(space, draws, envs.obs.shape[:2], envs.obs))
            for _ in range(config.collect.steps_per_env)
        ]
    walks = Transition(*(np.stack(column, 1) for column in zip(*turns, strict=True)))
    # A mask is no part of a state.
    obs, next_obs = (
        part[:, :, 0, : space.vector[1]].astype(np.float32) for part in (walks.obs, walks.next_obs)
    )
    return Observed(obs, next_obs, walks.terminated, walks.truncated), space


def _state_keys(
    config: Config, rows: Float32[np.ndarray, "row obs"], train: Float32[np.ndarray, "_ obs"]
) -> Shaped[np.ndarray, "row obs"]:
    """Returns a row for each observation, equal for those of one state.

    With `bins` it is the cell in the box that the training walks observed, at the nearest end of
    each axis for those outside.
    """
    bins = config.env.bins
    if bins is None:
        return rows
    width = np.ptp(train, axis=0)
    place = (rows - train.min(0)) / np.where(width > 0, width, 1) * bins
    return np.clip(np.floor(place), 0, bins - 1).astype(np.int32)


def _check_count(config: Config, states: int) -> None:
    """Raises DataError unless there are d states, and of cells not more than can be counted."""
    visited = f"the walks in {config.env.name} visit {states:,}"
    if config.env.bins is not None and states > COUNTED_STATES:
        raise DataError(
            f"{visited} cells, and at most {COUNTED_STATES:,} are counted; lower allo.env.bins, or "
            "set it to null: nothing is counted then"
        )
    if states < config.network.d:
        raise DataError(
            f"{visited} states, fewer than the {config.network.d} eigenvectors of allo.network.d; "
            "lower d or raise allo.env.bins"
        )


def is_counted(config: Config, dataset: Dataset) -> bool:
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
    shape, ends = walk.terminated.shape, (walk.terminated, walk.truncated)
    return from_walks(Walks(state.reshape(shape), next_state.reshape(shape), *ends))


def check(config: Config, dataset: Dataset) -> None:
    check_interface(config.env, dataset.interface)


def input_constants(config: Config, dataset: Dataset, seed: int) -> Float32[np.ndarray, "2 obs"]:
    """Returns mean and deviation of observations."""
    return np.stack([dataset.table.mean, dataset.table.std])


def inputs(
    config: Config, dataset: Dataset, constants: Float32[np.ndarray, "2 obs"]
) -> Float32[np.ndarray, "states obs"]:
    return standardise(dataset.coords, constants)


def standardise(
    observations: Float32[np.ndarray, "*batch obs"], constants: Float32[np.ndarray, "2 obs"]
) -> Float32[np.ndarray, "*batch obs"]:
    """Returns observations in units of deviations; an axis that never changes stays 0."""
    mean, std = constants
    return (observations - mean) / np.where(std > 0, std, 1)


def encoder_inputs(
    config: Config, constants: Float32[np.ndarray, "2 obs"]
) -> Callable[[Any], Float32[np.ndarray, "*batch obs"]]:
    """Returns what reads, as the walks were read, and scales one observation or a batch of them: of
    the environment, which is made for its spaces; of a recording rows of numbers.

    It raises DataError, a ValueError, for others.
    """
    size = constants.shape[1]
    space, read = _reader(config, size)

    def inputs_of(observations: Any) -> Float32[np.ndarray, "*batch obs"]:
        observed, is_single = batch_of(space, observations)
        rows = np.array([read(each) for each in observed], np.float32).reshape(-1, size)
        return standardise(rows[0] if is_single else rows, constants)

    return inputs_of


def _reader(config: Config, size: int) -> tuple[Any, Callable[[Any], np.ndarray]]:
    """Returns the space of observations, and what reads one of them.

    Raises:
        DataError: the environment cannot be made, or shows another number of values.
    """
    if config.env.is_recorded:
        space = Box(-np.inf, np.inf, (size,))
        return space, reader("the observation", space)
    with closing(HostEnvs(config.env, 1, 0)) as envs:
        (agent,), shown = envs.agents, envs.interface.vector[1]
    if shown != size:
        raise DataError(
            f"env {config.env.name} shows {shown}, the encoder learned of {size} numbers; "
            "train again"
        )
    return agent.spaces.observation, lambda value: agent.read(value, None, has_ended=True)[:shown]


# Serving.


def input_sizes(config: Config, arrays: dict[str, np.ndarray]) -> tuple[tuple[int, int], int]:
    """Returns the shape of the constants and the number of inputs, which only the arrays tell."""
    size = arrays["input_constants"].size // 2 if "input_constants" in arrays else 0
    return (2, size), size


def ask(dataset: Dataset, states: list[int]) -> Float32[np.ndarray, "questions obs"]:
    """Returns observations of states."""
    return dataset.coords[states]


def served(config: Config, constants: Float32[np.ndarray, "2 obs"], encode: Encode) -> Served:
    """Returns what encodes observations."""
    limits = np.float32, constants.shape[1:], -LARGEST, LARGEST
    return limits, lambda observed: {"eigenvectors": encode(standardise(observed, constants))}
