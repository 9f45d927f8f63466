"""What a user is promised of bad input and faults: each check names the promise that was broken."""

import re
from typing import NamedTuple, NoReturn

TRACE = re.compile(r"Traceback \(most recent call last\)|^\s+File \".*\", line \d+", re.M)
LONGEST_LINE = 2000


class Broken(AssertionError):
    """Says which promise is broken, and what happened instead."""


class Outcome(NamedTuple):
    """Holds what a user sees of a command: its exit code and all that it said."""

    code: int
    said: str


def broken(kind: str, what: str) -> NoReturn:
    raise Broken(f"{kind}: {what[-LONGEST_LINE:]}")


def refused(outcome: Outcome, code: int, says: str = "") -> None:
    """The command ends with `code` and one line, which has the pattern `says`."""
    if TRACE.search(outcome.said):
        broken("traceback", outcome.said)
    if outcome.code == 0:
        broken("silent", f"accepted, where exit {code} is due: {outcome.said}")
    if outcome.code != code:
        broken("wrong code", f"exit {outcome.code}, not {code}: {outcome.said}")
    lines = [line for line in outcome.said.splitlines() if "[exit " in line]
    if len(lines) != 1 or not lines[0].endswith(f"[exit {code}]"):
        broken("unclear", f"not one line with its exit code: {outcome.said}")
    if not re.search(says, lines[0]):
        broken("unclear", f"{says!r} is not in: {lines[0]}")


def accepted(outcome: Outcome) -> None:
    """The command does its work, with nothing worse than a warning."""
    if TRACE.search(outcome.said):
        broken("traceback", outcome.said)
    if outcome.code != 0:
        broken("wrong code", f"exit {outcome.code}, not 0: {outcome.said}")
