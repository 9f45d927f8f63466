"""config, seed -> transitions to learn from and held-out ones, of an environment or of files"""

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float32, Float64

from quatrain.envs.host.envs import HostEnvs, check_interface
from quatrain.envs.host.spaces import Interface, SavedInterface, describe
from quatrain.envs.host.user_code import SingleAgent, make, user_code
from quatrain.errors import DataError, DatasetMismatch
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig, UserEnv

# Least transitions that something is learned from.
FEWEST = 50
# More observations than this are no measured states.
MOST_STATES = 64
# Largest number of a recording.
LARGEST = 1e6
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
    """Raises unless the dataset can be of the config's system.

    Raises:
        DatasetMismatch: it has other sizes or another time step.
        DataError: an environment cannot be made.
    """
    if not config.env.is_recorded:
        check_interface(config.env, dataset.interface)
    if config.env.dt is not None and config.env.dt != float(dataset.dt):
        raise DatasetMismatch(
            f"active_dynamics: the dataset has steps of {float(dataset.dt):g}, env.dt is "
            f"{config.env.dt:g}; collect again"
        )


# Environments.


def time_step(env: UserEnv) -> float:
    """Returns the time of a transition: `env.dt`, or what the environment calls `dt`."""
    if env.dt is not None:
        return env.dt
    with closing(make(env)) as host, user_code(lambda reason: f"env {env.name}: {reason}"):
        assert isinstance(host, SingleAgent)
        dt = getattr(host.env.unwrapped, "dt", None)
    if not isinstance(dt, int | float) or dt <= 0:
        raise DataError(
            f"env {env.name} has no dt; set active_dynamics.env.dt to the time of a transition"
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

    def column(name: str) -> np.ndarray:
        return np.concatenate(np.stack([getattr(turn, name)[:, 0] for turn in turns], 1))

    ends = np.stack([turn.terminated | turn.truncated for turn in turns], 1)
    ends[:, -1] = True
    runs = Runs(column("obs"), column("actions"), column("next_obs"), ends.ravel())
    return runs, interface


# Recordings.


def _recorded(config: ActiveDynamicsUserEnvConfig) -> Dataset:
    env = config.env
    pattern = Path(str(env.path))
    files = sorted(map(str, pattern.parent.glob(pattern.name)))
    if not files:
        raise DataError(f"{env.path}: no such file; a relative path starts in {Path.cwd()}")
    runs, steps = [], []
    for file in files:
        for run, dt in _read_csv(env, file) if file.endswith(".csv") else _read_npz(env, file):
            runs.append(run)
            steps.append(dt)
    sizes = {(run.obs.shape[1], run.actions.shape[1]) for run in runs}
    if len(sizes) > 1:
        raise DataError(f"{env.path}: files have different numbers of columns; make them equal")
    joined = Runs(*map(np.concatenate, zip(*runs, strict=True)))
    if env.action_bound is not None and np.abs(joined.actions).max() > env.action_bound:
        raise DataError(
            f"{env.path}: an action of {np.abs(joined.actions).max():g} is beyond active_dynamics."
            f"env.action_bound {env.action_bound:g}; raise it, or set it to null"
        )
    count = len(joined.ends)
    border = count - round(config.collect.held_out_fraction * count)
    least = max(FEWEST, config.network.features // 2)
    if border < least or count - border < 2:
        raise DataError(
            f"{env.path}: leaves {border} of {count} transitions to learn from; record at least "
            f"{round(least * count / max(border, 1)) + 1}"
        )
    bound = np.abs(joined.actions).max(0)
    states = Box(-np.inf, np.inf, joined.obs.shape[1:])
    interface = describe({"recording": (states, Box(-bound, bound))}, count)
    dt = float(np.median(steps))
    return Dataset(
        joined.part(0, border), joined.part(border, count), interface.saved, np.array(dt)
    )


def _read_csv(env: UserEnv, file: str) -> Iterator[tuple[Runs, float]]:
    """Yields the runs of a table: the actions of a row lead to the next one."""
    table = _table(file)
    used = (*env.actions, *(env.states or ()), *filter(None, (env.time, env.run)))
    for name in used:
        if name not in table:
            raise DataError(f"{file} has no column {name!r}; it has {', '.join(table)}")
    others = {*env.actions, env.time, env.run}
    states = env.states or tuple(name for name in table if name not in others)
    for name in env.angles:
        if name not in states:
            raise DataError(f"{file}: angle {name!r} is no state; these are {', '.join(states)}")
    if not states:
        raise DataError(f"{file} has no column of states; it has {', '.join(table)}")
    _check_states(env, file, table, states)
    obs = np.column_stack([part for name in states for part in _state(env, name, table[name])])
    actions = np.column_stack([table[name] for name in env.actions])
    number = table[env.run] if env.run else np.zeros(len(obs))
    borders = [0, *np.flatnonzero(np.diff(number)) + 1, len(obs)]
    for first, last in pairwise(borders):
        dt = env.dt
        if dt is None:
            dt = _even_step(env, file, table, first, last)
        if last - first > 1:
            yield _run(obs[first:last], actions[first : last - 1]), dt


def _table(file: str) -> dict[str, np.ndarray]:
    try:
        header, *rows = Path(file).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file}: {error}; save it as CSV in UTF-8 with a header") from None
    names = [name.strip().strip('"') for name in header.split(",")]
    values = []
    for place, row in enumerate(rows, start=2):
        if not row.strip():
            continue
        cells = row.split(",")
        if len(cells) != len(names):
            raise DataError(
                f"{file}: row {place} has {len(cells)} columns, the header {len(names)}; mend it"
            )
        try:
            values.append([float(cell) for cell in cells])
        except ValueError as error:
            raise DataError(f"{file}: row {place}: {error}; write numbers alone") from None
        wrong = [name for name, x in zip(names, values[-1], strict=True) if not abs(x) <= LARGEST]
        if wrong:
            raise DataError(
                f"{file}: row {place}: {wrong[0]} is {cells[names.index(wrong[0])].strip()}, not "
                f"from {-LARGEST:g} to {LARGEST:g}; leave the row out and begin another run there"
            )
    if len(values) < 2:
        raise DataError(f"{file} has {len(values)} rows of numbers; record more")
    return dict(zip(names, np.array(values).T, strict=True))


def _check_states(
    env: UserEnv, file: str, table: dict[str, np.ndarray], states: tuple[str, ...]
) -> None:
    """Refuses what is no state, or an angle that is not listed as one."""
    for name in [state for state in states if state not in env.angles]:
        steps = np.diff(table[name])
        step = float(np.median(steps))
        if np.isclose(steps, step, rtol=UNEVEN, atol=0).mean() > MOSTLY:
            raise DataError(
                f"{file}: {name} changes by {step:g} in almost each row, as time or the number of a"
                " run does; name it in active_dynamics.env.time or run, or list the states"
            )
        jumps = np.abs(np.abs(steps) - 2 * np.pi) < 0.5
        if jumps.any() and np.ptp(table[name]) < 2 * np.pi + 0.5:
            raise DataError(
                f"{file}: {name} jumps by about 2 pi at row {int(jumps.argmax()) + 3}: an angle; "
                "list it in active_dynamics.env.angles"
            )


def _state(env: UserEnv, name: str, values: np.ndarray) -> tuple[np.ndarray, ...]:
    return (np.cos(values), np.sin(values)) if name in env.angles else (values,)


def _even_step(
    env: UserEnv, file: str, table: dict[str, np.ndarray], first: int, last: int
) -> float:
    if env.time is None:
        raise DataError(f"{file}: nothing tells its time step; set active_dynamics.env.dt or time")
    steps = np.diff(table[env.time][first:last])
    step = float(np.median(steps)) if len(steps) else 1.0
    uneven = np.abs(steps - step) > UNEVEN * abs(step)
    if step <= 0 or uneven.any():
        place = int(uneven.argmax())
        raise DataError(
            f"{file}: {env.time} goes on by {steps[place]:g} at row {first + place + 3}, mostly by "
            f"{step:g}; record in even steps, or begin another run there (active_dynamics.env.run)"
        )
    return step


def _read_npz(env: UserEnv, file: str) -> Iterator[tuple[Runs, float]]:
    """Yields the runs of arrays: `observations` [time + 1, obs] and `actions` [time, action], or
    with a first axis of runs; `observations_0`, `actions_0` and so on are runs of their own.
    """
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: np.asarray(archive[name]) for name in archive.files}
    except Exception as error:  # whatever zipfile and NumPy raise for odd bytes
        raise DataError(f"{file}: {error}; write it with numpy.savez") from None
    if env.dt is None:
        raise DataError(f"{file}: nothing tells its time step; set active_dynamics.env.dt")
    names = [name for name in arrays if name.startswith("observations")]
    pairs = {name: name.replace("observations", "actions") for name in names}
    if not names or sorted([*pairs, *pairs.values()]) != sorted(arrays):
        raise DataError(
            f"{file} holds {', '.join(arrays) or 'nothing'}; numpy.savez it with observations and "
            "actions, or observations_0, actions_0 and so on"
        )
    for name, other in pairs.items():
        y, actions = (_floats(file, each, arrays[each]) for each in (name, other))
        if y.shape[0] != actions.shape[0] or y.shape[1] != actions.shape[1] + 1:
            raise DataError(
                f"{file}: {name} has shape {arrays[name].shape}, {other} {arrays[other].shape}; "
                "observations are one more in time than actions"
            )
        for observed, acted in zip(y, actions, strict=True):
            yield _run(observed, acted), env.dt


def _floats(file: str, name: str, values: np.ndarray) -> Float64[np.ndarray, "run time column"]:
    if values.dtype.kind not in "fiu" or values.ndim not in (2, 3) or 0 in values.shape:
        raise DataError(
            f"{file}: {name} is {values.dtype} of shape {values.shape}; save numbers with the axes "
            "time, channel, or run, time, channel"
        )
    runs = values.reshape(-1, *values.shape[-2:]).astype(float)
    faulty = np.argwhere(~(np.abs(runs) <= LARGEST))
    if len(faulty):
        run, time, column = faulty[0].tolist()
        raise DataError(
            f"{file}: {name} is {runs[run, time, column]} in run {run}, time {time}, channel "
            f"{column}, not from {-LARGEST:g} to {LARGEST:g}; leave that run out, or end it before"
        )
    return runs


def _run(obs: Any, actions: Any) -> Runs:
    ends = np.zeros(len(actions), bool)
    ends[-1:] = True
    y, acted = obs.astype(np.float32), actions.astype(np.float32)
    return Runs(y[:-1], acted, y[1:], ends)
