"""config, seed -> transitions to learn from and held-out ones, of an environment or of files"""

from collections.abc import Sequence
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float32, Float64

from quatrain.envs.host.config import EPISODE, FLAGS
from quatrain.envs.host.envs import HostEnvs, Transition
from quatrain.envs.host.spaces import Interface, SavedInterface, describe
from quatrain.envs.host.user_code import make, user_code
from quatrain.errors import DataError
from quatrain.models.active_dynamics.config import ACTIONS, UserEnv
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.storage.recordings import OBSERVATIONS, Table, read_table

# Least transitions that something is learned from.
FEWEST = 50
# More observations than this are no measured states.
MOST_STATES = 64
# Least and most transitions that an action of warm-up and held-out transitions is held.
HOLD = (1, 19)
# Environments that they are played in.
NUM_ENVS = 2
# Largest difference of two steps of time, relative to their median.
UNEVEN = 0.1
# Share of rows in which no state changes evenly.
MOSTLY = 0.95
# A whole turn in radians and in degrees, and how near to it, relatively, a jump of an angle is.
TURNS = {"2 pi": 2 * np.pi, "360": 360.0}
WITHIN = 0.08


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


def collect(config: Config, seed: int) -> Dataset:
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


def check_spaces(env: UserEnv, interface: Interface) -> None:
    """Raises DataError if actions are no vectors of real numbers, or observations no states."""
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


def to_actions(
    env: UserEnv, interface: Interface, scaled: np.ndarray
) -> Float32[np.ndarray, "... action"]:
    """Returns actions of -1..1 in the units of the environment, within `env.action_bound`."""
    bound = env.action_bound or np.inf
    low, high = np.clip([interface.action_low, interface.action_high], -bound, bound)
    return (low + (np.clip(scaled, -1, 1) + 1) / 2 * (high - low)).astype(np.float32)


def play(config: Config, count: int, seed: int) -> tuple[Runs, Interface]:
    """Plays so many transitions of uniform actions that are held for random times."""
    env, draws = config.env, np.random.default_rng(seed)
    times = -(-count // NUM_ENVS)
    with closing(HostEnvs(env, NUM_ENVS, seed)) as envs:
        interface = envs.interface
        check_spaces(env, interface)
        levels = draws.uniform(-1, 1, (NUM_ENVS, times, len(interface.action_low)))
        holds = draws.integers(HOLD[0], HOLD[1] + 1, (NUM_ENVS, times))
        rows = [np.repeat(*each, 0)[:times] for each in zip(levels, holds, strict=True)]
        scaled = np.stack(rows, 1)[:, :, None]
        turns = [envs.step(to_actions(env, interface, actions)) for actions in scaled]
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


def _recorded(config: Config) -> Dataset:
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
    is_last = table.last_rows(len(actions), env.run or EPISODE)
    states = [_state(env, table, name, is_last) for name in _states(env, table)]
    y, a = (column.astype(np.float32) for column in (np.concatenate(states, 1), actions))
    rows = np.flatnonzero(~is_last)
    runs = Runs(y[rows], a[rows], y[rows + 1], is_last[rows + 1])
    return runs, env.dt or _even_step(env, table, is_last)


def _states(env: UserEnv, table: Table) -> Sequence[str]:
    """Returns the names of the states."""
    others = {*env.actions, *ACTIONS, *FLAGS, EPISODE, env.time, env.run}
    columns = [name for name in table.arrays if name not in others]
    names = env.states or ((OBSERVATIONS,) if OBSERVATIONS in columns else (*columns,))
    for angle in env.angles:
        if angle not in names:
            raise DataError(f"{table.path}: angle {angle!r} is no state; these are {names}")
    return names or (OBSERVATIONS,)


def _state(
    env: UserEnv, table: Table, name: str, is_last: Bool[np.ndarray, " row"]
) -> Float64[np.ndarray, "row number"]:
    """Returns the numbers of a state, of an angle cosine and sine.

    Raises:
        DataError: it is no state, an angle that is not listed, or one in degrees.
    """
    values = table.rows(name, len(is_last))
    if name in env.angles:
        least, most = values.min(), values.max()
        if any(0 <= least - low < 36 and 324 < most - low <= 360 for low in (-180, 0)):
            raise DataError(
                f"{table.path}: angle {name} goes from {least:g} to {most:g}, as degrees do; write "
                "it in radians"
            )
        return np.concatenate([np.cos(values), np.sin(values)], 1)
    rows = np.flatnonzero(~is_last)
    steps = np.diff(values, axis=0)[rows]
    if (np.isclose(steps, np.median(steps, 0), rtol=UNEVEN, atol=0).mean(0) > MOSTLY).any():
        raise DataError(
            f"{table.path}: {name} changes evenly in almost each row, as time or the number of a "
            "run does; name it in active_dynamics.env.time or run, or list the states"
        )
    for text, turn in TURNS.items():
        is_turn = np.abs(np.abs(steps) - turn) < turn * WITHIN
        jumps = (is_turn & (np.ptp(values, 0) < turn * (1 + WITHIN))).any(1)
        if jumps.any():
            raise DataError(
                f"{table.path}: {name} jumps by about {text} at row "
                f"{table.place(int(rows[jumps][0]) + 1)}: an angle; list it in "
                "active_dynamics.env.angles, in radians"
            )
    return values


def _even_step(env: UserEnv, table: Table, is_last: Bool[np.ndarray, " row"]) -> float:
    if env.time is None:
        raise DataError(
            f"{table.path}: nothing tells its time step; set active_dynamics.env.dt or time"
        )
    rows = np.flatnonzero(~is_last)
    steps = np.diff(table.rows(env.time, len(is_last))[:, 0])[rows]
    step = float(np.median(steps))
    uneven = np.abs(steps - step) > UNEVEN * abs(step)
    if step <= 0 or uneven.any():
        place = int(uneven.argmax())
        raise DataError(
            f"{table.path}: {env.time} goes on by {steps[place]:g} at row "
            f"{table.place(int(rows[place]) + 1)}, mostly by {step:g}; record in even steps, or "
            "begin another run there (active_dynamics.env.run)"
        )
    return step
