"""config, seed -> transitions to learn from and held-out ones, of an environment or of files"""

from collections.abc import Sequence
from contextlib import closing
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
from gymnasium.spaces import Box
from jaxtyping import Bool, Float32, Float64, UInt8

from quatrain.envs.host.envs import HostEnvs, Transition, check_interface
from quatrain.envs.host.spaces import Interface, SavedInterface, describe
from quatrain.envs.host.user_code import imported, make, user_code
from quatrain.errors import DataError
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig as Config
from quatrain.models.active_dynamics.config import UserEnv
from quatrain.models.active_dynamics.user_env import recorded
from quatrain.models.active_dynamics.user_env.recorded import RecordedFile

# Least transitions that something is learned from.
FEWEST = 50
# More observations than this are no measured states.
MOST_STATES = 64
# Least and most transitions that an action of warm-up and held-out transitions is held.
HOLD = (1, 19)
# Environments that they are played in.
NUM_ENVS = 2
# States at which a true field is tried.
TRIED = 5


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

    dt: time of a transition. names: of the states in UTF-8, one a line.
    """

    train: Runs
    held_out: Runs
    interface: SavedInterface
    dt: Float64[np.ndarray, ""]
    names: UInt8[np.ndarray, " byte"]

    @property
    def state_names(self) -> list[str]:
        return self.names.tobytes().decode().split("\n")


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
    names = [f"state {place}" for place in range(train.obs.shape[1])]
    return Dataset(train, held_out, interface.saved, dt, _as_bytes(names))


def _as_bytes(names: Sequence[str]) -> UInt8[np.ndarray, " byte"]:
    return np.frombuffer("\n".join(names).encode(), np.uint8)


def summary(config: Config, dataset: Dataset) -> str:
    """Returns in one line what there is to learn from."""
    env = config.env
    parts = [
        f"{len(runs.ends):,} transitions of {int(runs.ends.sum()):,} runs {use}"
        for runs, use in ((dataset.train, "to learn from"), (dataset.held_out, "held out"))
    ]
    states = ", ".join(dataset.state_names)
    actions = ", ".join(env.actions) or str(dataset.train.actions.shape[1])
    parts += [f"dt {dataset.dt:.4g}", f"states {states}", f"actions {actions}"]
    return f"{env.path or env.name}: {'; '.join(parts)}"


def check(config: Config, dataset: Dataset) -> None:
    """Checks that the dataset is of the config's environment, and tries the true field.

    Raises:
        DatasetMismatch: it is of another environment.
        DataError: the environment cannot be made, or the true field cannot be used.
    """
    check_interface(config.env, dataset.interface)
    if config.env.true_field is not None:
        true_velocities(config.env.true_field, dataset.train.obs[:TRIED].astype(float))


def true_velocities(name: str, y: Float64[np.ndarray, "point d"]) -> Float64[np.ndarray, "point d"]:
    """Returns what the function `name` (module:function) tells of the field at some states.

    Raises:
        DataError: it cannot be imported, or returns no velocities.
    """
    module, _, function = name.partition(":")
    with user_code(
        lambda reason: (
            f"active_dynamics.env.true_field {name}: {reason}; it is a function: states [n, d] -> "
            "velocities [n, d]"
        )
    ):
        velocities = np.asarray(imported(module, function)(y.copy()), float)
        if velocities.shape != y.shape or not np.isfinite(velocities).all():
            raise DataError(
                f"returned {velocities.shape} for states {y.shape}, or numbers that are not finite"
            )
    return velocities


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
    tables = [recorded.read(env, file) for file in files]
    runs = [_runs_of(table) for table in tables]
    if len({(*table.names, table.actions.shape[1]) for table in tables}) > 1:
        raise DataError(f"{env.path}: files have different columns; make them equal")
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
    dt = np.array(np.median([table.step for table in tables]))
    parts = (joined.part(0, border), joined.part(border, count))
    return Dataset(*parts, interface.saved, dt, _as_bytes(tables[0].names))


def _runs_of(table: RecordedFile) -> Runs:
    """Returns transitions: the actions of a row lead to the next."""
    obs, actions, is_last, *_ = table
    rows = np.flatnonzero(~is_last)
    return Runs(obs[rows], actions[rows], obs[rows + 1], is_last[rows + 1])
