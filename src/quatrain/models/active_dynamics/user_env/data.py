"""config, seed -> transitions to learn from and held-out ones, of an environment or of files"""

from collections.abc import Sequence
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float32, Float64, Int64

from quatrain.envs.host.envs import HostEnvs, Transition, check_interface
from quatrain.envs.host.spaces import Interface, SavedInterface, describe
from quatrain.envs.host.user_code import make, user_code
from quatrain.errors import DataError
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig, UserEnv
from quatrain.storage.recordings import EPISODE, FLAGS, OBSERVATIONS, Table, read_table

# Least transitions that something is learned from.
FEWEST = 50
# More observations than this are no measured states.
MOST_STATES = 64
# What a recording calls actions unless `env.actions` names columns.
ACTIONS = ("actions",)
# Least and most transitions that an action of warm-up and held-out transitions is held.
HOLD = (1, 19)
# Environments that they are played in.
NUM_ENVS = 2
# Largest difference of two steps of time, relative to their median.
UNEVEN = 0.1
# Share of rows in which no state changes evenly.
MOSTLY = 0.95


class Runs(NamedTuple):
    """Holds transitions in the user's units; after one that `ends` a run another one begins."""

    obs: Float32[np.ndarray, "time obs"]
    actions: Float32[np.ndarray, "time action"]
    next_obs: Float32[np.ndarray, "time obs"]
    ends: Bool[np.ndarray, " time"]

    def part(self, first: int, last: int) -> "Runs":
        """Returns the transitions first <= i < last; the last one ends a run."""
        runs = Runs(*(column[first:last].copy() for column in self))
        runs.ends[-1:] = True
        return runs


class Dataset(NamedTuple):
    """Holds what all arms begin with, or all recorded transitions to learn from, and held-out ones.

    dt: time of a transition.
    """

    train: Runs
    held_out: Runs
    interface: SavedInterface
    dt: Float64[np.ndarray, ""]


def collect(config: ActiveDynamicsUserEnvConfig, seed: int) -> Dataset:
    """Plays random and binary actions, or reads a recording.

    Raises:
        DataError: says in one line what is wrong with environment or file, where, and how to mend
            it.
    """
    if config.env.is_recorded:
        return _recorded(config)
    env_seed, held_out_seed = np.random.SeedSequence(seed).generate_state(2)
    dt = np.array(time_step(config.env))
    train, interface = play(config, config.collect.warmup, int(env_seed))
    held_out, _ = play(config, config.collect.held_out_transitions, int(held_out_seed))
    return Dataset(train, held_out, interface.saved, dt)


def check(config: ActiveDynamicsUserEnvConfig, dataset: Dataset) -> None:
    """Raises unless the dataset can be of the config's environment; a recording is none.

    Raises:
        DatasetMismatch: an environment has other spaces.
        DataError: an environment cannot be made.
    """
    if not config.env.is_recorded:
        check_interface(config.env, dataset.interface)


# Environments.


def time_step(env: UserEnv) -> float:
    """Returns the time of a transition: `env.dt`, or what the environment calls `dt`."""
    if env.dt is not None:
        return env.dt
    with closing(make(env)) as host, user_code(lambda reason: f"env {env.name}: {reason}"):
        dt = getattr(host.unwrapped, "dt", None)
    if not isinstance(dt, Real) or isinstance(dt, bool) or not 0 < float(dt) < np.inf:
        raise DataError(
            f"env {env.name} has no finite dt above 0; set active_dynamics.env.dt to the time of a "
            "transition"
        )
    return float(dt)


def checked(env: UserEnv, interface: Interface) -> Interface:
    """Returns the interface, with actions within `env.action_bound`.

    Raises:
        DataError: actions are no vectors of real numbers, or observations no states.
    """
    if interface.action_counts or interface.has_integers:
        raise DataError(
            f"env {env.name}: actions are not continuous, so no effect B(x) a of theirs can be "
            "learned; wrap the environment so that it takes a Box of floats"
        )
    if interface.observation_size > MOST_STATES:
        raise DataError(
            f"env {env.name}: an observation has {interface.observation_size} numbers, such as an "
            f"image; active_dynamics takes at most {MOST_STATES} measured states"
        )
    bound = env.action_bound or np.inf
    low, high = (
        tuple(np.clip(side, -bound, bound).tolist())
        for side in (interface.action_low, interface.action_high)
    )
    return interface._replace(action_low=low, action_high=high)


def to_actions(interface: Interface, scaled: np.ndarray) -> Float32[np.ndarray, "... action"]:
    """Returns actions of -1..1 in the units of the environment."""
    low, high = np.array(interface.action_low), np.array(interface.action_high)
    return (low + (np.clip(scaled, -1, 1) + 1) / 2 * (high - low)).astype(np.float32)


def play(config: ActiveDynamicsUserEnvConfig, count: int, seed: int) -> tuple[Runs, Interface]:
    """Plays so many transitions of uniform actions that are held for random times."""
    draws = np.random.default_rng(seed)
    times = -(-count // NUM_ENVS)
    with closing(HostEnvs(config.env, NUM_ENVS, seed)) as envs:
        interface = checked(config.env, envs.interface)
        levels = draws.uniform(-1, 1, (NUM_ENVS, times, len(interface.action_low)))
        holds = draws.integers(HOLD[0], HOLD[1] + 1, (NUM_ENVS, times))
        rows = [np.repeat(*each, 0)[:times] for each in zip(levels, holds, strict=True)]
        scaled = np.stack(rows, 1)[:, :, None]
        turns = [envs.step(to_actions(interface, actions)) for actions in scaled]
    ends = np.stack([turn.terminated | turn.truncated for turn in turns], 1)
    ends[:, -1] = True
    obs, actions, next_obs = map(np.concatenate, columns_of(turns))
    return Runs(obs, actions, next_obs, ends.ravel()).part(0, count), interface


def columns_of(turns: Sequence[Transition]) -> list[Float32[np.ndarray, "env time number"]]:
    """Returns observations, actions and next observations."""
    return [
        np.stack([getattr(turn, name)[:, 0] for turn in turns], 1)
        for name in ("obs", "actions", "next_obs")
    ]


# Recordings.


def _recorded(config: ActiveDynamicsUserEnvConfig) -> Dataset:
    env = config.env
    pattern = Path(str(env.path))
    files = sorted(map(str, pattern.parent.glob(pattern.name))) or [str(pattern)]
    runs, steps = zip(*(_read(env, file) for file in files), strict=True)
    if len({(part.obs.shape[1], part.actions.shape[1]) for part in runs}) > 1:
        raise DataError(f"{env.path}: files have different numbers of columns; make them equal")
    joined = Runs(*map(np.concatenate, zip(*runs, strict=True)))
    count = len(joined.ends)
    border = count - round(config.collect.held_out_fraction * count)
    least = max(FEWEST, config.network.features // 2)
    if border < least or count - border < 2:
        raise DataError(
            f"{env.path}: leaves {border} of {count} transitions to learn from, which takes "
            f"{least}; record more"
        )
    bound = np.abs(joined.actions).max(0)
    states = Box(-np.inf, np.inf, joined.obs.shape[1:])
    interface = describe({"recording": (states, Box(-bound, bound))}, count)
    dt = np.array(np.median(steps))
    return Dataset(joined.part(0, border), joined.part(border, count), interface.saved, dt)


def _read(env: UserEnv, file: str) -> tuple[Runs, float]:
    """Returns the runs of a file, and their time step: the actions of a row lead to the next."""
    table = read_table(file)
    actions = np.concatenate([table.rows(name) for name in env.actions or ACTIONS], 1)
    obs = np.concatenate(_states(env, table), 1)
    if len(actions) != len(obs):
        raise DataError(
            f"{file}: {len(actions)} rows of actions, {len(obs)} of states; give both one a row, "
            "also in the last row of a run, whose actions are not used"
        )
    is_last = table.last_rows(len(obs), env.run or EPISODE)
    rows = np.flatnonzero(~is_last)
    y, acted = obs.astype(np.float32), actions.astype(np.float32)
    runs = Runs(y[rows], acted[rows], y[rows + 1], is_last[rows + 1])
    return runs, env.dt or _even_step(env, table, rows)


def _states(env: UserEnv, table: Table) -> list[Float64[np.ndarray, "row number"]]:
    """Returns columns of states, angles as cosine and sine.

    Raises:
        DataError: there is none, or one that is no state, or is an angle that is not listed as one.
    """
    others = {*env.actions, *ACTIONS, *FLAGS, EPISODE, env.time, env.run}
    names = env.states or ((OBSERVATIONS,) if OBSERVATIONS in table.arrays else ())
    names = names or tuple(name for name in table.arrays if name not in others)
    for name in env.angles:
        if name not in names:
            raise DataError(f"{table.path}: angle {name!r} is no state; these are {names}")
    parts = []
    for name in names or (OBSERVATIONS,):
        values = table.rows(name)
        if name in env.angles:
            parts += [np.cos(values), np.sin(values)]
        else:
            _check_state(table, name, values)
            parts.append(values)
    return parts


def _check_state(table: Table, name: str, values: Float64[np.ndarray, "row number"]) -> None:
    steps = np.diff(values, axis=0)
    typical = np.median(steps, 0)
    if (np.isclose(steps, typical, rtol=UNEVEN, atol=0).mean(0) > MOSTLY).any():
        raise DataError(
            f"{table.path}: {name} changes evenly in almost each row, as time or the number of a "
            "run does; name it in active_dynamics.env.time or run, or list the states"
        )
    jumps = (np.abs(np.abs(steps) - 2 * np.pi) < 0.5) & (np.ptp(values, 0) < 2 * np.pi + 0.5)
    if jumps.any():
        place = table.place(int(jumps.any(1).argmax()) + 1)
        raise DataError(
            f"{table.path}: {name} jumps by about 2 pi at row {place}: an angle; list it in "
            "active_dynamics.env.angles"
        )


def _even_step(env: UserEnv, table: Table, rows: Int64[np.ndarray, " transition"]) -> float:
    if env.time is None:
        raise DataError(
            f"{table.path}: nothing tells its time step; set active_dynamics.env.dt or time"
        )
    times = table.rows(env.time)[:, 0]
    steps = times[rows + 1] - times[rows]
    step = float(np.median(steps)) if len(steps) else 1.0
    uneven = np.abs(steps - step) > UNEVEN * abs(step)
    if step <= 0 or uneven.any():
        place = int(uneven.argmax())
        raise DataError(
            f"{table.path}: {env.time} goes on by {steps[place]:g} at row "
            f"{table.place(int(rows[place]) + 1)}, mostly by {step:g}; record in even steps, or "
            "begin another run there (active_dynamics.env.run)"
        )
    return step
