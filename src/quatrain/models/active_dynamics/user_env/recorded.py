"""a file of recorded runs -> its states, actions and time step, checked"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Float64

from quatrain.envs.host.config import EPISODE, FLAGS
from quatrain.errors import DataError
from quatrain.models.active_dynamics.config import ACTIONS, UserEnv
from quatrain.storage.recordings import OBSERVATIONS, Table, read_table

# Largest difference of two steps of time, relative to their median.
UNEVEN = 0.1
# Share of rows in which no state changes evenly.
MOSTLY = 0.95
# A whole turn in radians and in degrees, and how near to it, relatively, a jump of an angle is.
TURNS = {"2 pi": 2 * np.pi, "360": 360.0}
WITHIN = 0.08
# An angle turns by less than this from row to row, but for a smaller share of the rows.
LARGEST_STEP, SELDOM = np.pi / 2, 0.25


class RecordedFile(NamedTuple):
    """Holds the rows of a file: states, with cosine and sine of angles, actions, and whether a row
    ends a run; the time from row to row; names of the states.
    """

    obs: Float32[np.ndarray, "row obs"]
    actions: Float32[np.ndarray, "row action"]
    is_last: Bool[np.ndarray, " row"]
    step: float
    names: list[str]


def read(env: UserEnv, file: str) -> RecordedFile:
    """Reads the columns that `env` names.

    Raises:
        DataError: a column is not there, or cannot be what it is named as.
    """
    table = read_table(file)
    if not env.actions and ACTIONS[0] not in table.arrays:
        raise DataError(
            f"{file} has no {ACTIONS[0]!r}; it has {', '.join(table.arrays)}: name the columns of "
            "actions in active_dynamics.env.actions (identify: --actions)"
        )
    actions = np.concatenate([table.rows(name) for name in env.actions or ACTIONS], 1)
    for column in filter(None, (env.time, env.run)):
        table.rows(column, len(actions))
    is_last = table.last_rows(len(actions), env.run or EPISODE)
    columns = {name: _state(env, table, name, is_last) for name in _states(env, table)}
    names = [
        each
        for name, values in columns.items()
        for each in _names_of(name, name in env.angles, values.shape[1])
    ]
    states = np.concatenate([*columns.values()], 1)
    step = env.dt or _even_step(env, table, is_last)
    return RecordedFile(states.astype(np.float32), actions.astype(np.float32), is_last, step, names)


def _names_of(column: str, is_angle: bool, size: int) -> list[str]:
    """Returns the names of the numbers that a column counts as."""
    kinds = ("cos ", "sin ") if is_angle else ("",)
    each = size // len(kinds)
    ends = [""] if each == 1 else [f" {place}" for place in range(each)]
    return [f"{kind}{column}{end}" for kind in kinds for end in ends]


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
        DataError: it is no state, an angle that is not listed, or one that is in degrees or turns
            too far from row to row.
    """
    values = table.rows(name, len(is_last))
    rows = np.flatnonzero(~is_last)
    steps = np.diff(values, axis=0)[rows]
    if name in env.angles:
        least, most = values.min(), values.max()
        is_whole = any(0 <= least - low < 36 and 324 < most - low <= 360 for low in (-180, 0))
        if is_whole and (np.abs(steps) > 324).any():
            raise DataError(
                f"{table.path}: angle {name} goes from {least:g} to {most:g}, as degrees do; write "
                "it in radians"
            )
        # Only radians have a border within such a range at which they jump.
        turn = 2 * np.pi
        is_wrapped = np.ptp(values) < turn * (1 + WITHIN)
        turned = np.abs((steps + np.pi) % turn - np.pi if is_wrapped else steps)
        share = (turned > LARGEST_STEP).mean()
        if share > SELDOM:
            raise DataError(
                f"{table.path}: angle {name} turns by more than pi/2 from {share:.0%} of the rows "
                "to the next; write it in radians, no degrees, or record it more often"
            )
        return np.concatenate([np.cos(values), np.sin(values)], 1)
    if (np.isclose(steps, np.median(steps, 0), rtol=UNEVEN, atol=0).mean(0) > MOSTLY).any():
        raise DataError(
            f"{table.path}: {name} changes evenly in almost each row, as time or the number of a "
            "run does; name it in active_dynamics.env.time (in place of dt) or run, or list the "
            "states without it"
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
