"""What a user is promised of bad input and faults: each check names the promise that was broken."""

import re
import subprocess
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

# Ways in which a promise is broken.
KINDS = ("silent", "traceback", "leaked", "hang", "lost", "wrong code", "unclear")
TRACE = re.compile(r"Traceback \(most recent call last\)|^\s+File \".*\", line \d+", re.M)
LONGEST_LINE = 2000


class Broken(AssertionError):
    """Says which promise is broken, and what happened instead."""


class Outcome(NamedTuple):
    """Holds what a user sees of a command: its exit code and all that it said."""

    code: int
    said: str


def broken(kind: str, what: str) -> NoReturn:
    assert kind in KINDS
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
    if not all(line.isprintable() for line in outcome.said.splitlines()):
        broken("unclear", f"controls a terminal: {outcome.said!r}")
    if len(lines[0]) > LONGEST_LINE or not re.search(says, lines[0]):
        broken("unclear", f"{says!r} is not in: {lines[0]}")


def accepted(outcome: Outcome) -> None:
    """The command does its work, with nothing worse than a warning."""
    if TRACE.search(outcome.said):
        broken("traceback", outcome.said)
    if outcome.code != 0:
        broken("wrong code", f"exit {outcome.code}, not 0: {outcome.said}")


def hidden(secret: str, output: str) -> None:
    """No part of the output has the secret."""
    if secret in output:
        broken("leaked", output)


def unchanged(before: dict[str, str], after: dict[str, str]) -> None:
    """No file was lost, altered or left half-written."""
    differing = sorted({name for name, _ in before.items() ^ after.items()})
    if differing:
        broken("lost", f"changed: {', '.join(differing)}")


def content_of(folder: Path) -> dict[str, str]:
    """What each path in a folder holds: the digest of a file, or where a link leads.

    Locks are left out: who holds one writes nothing that stays.
    """
    return {
        str(path.relative_to(folder)): (
            f"-> {path.readlink()}" if path.is_symlink() else sha256(path.read_bytes()).hexdigest()
        )
        for path in sorted(folder.rglob("*"))
        if (path.is_symlink() or path.is_file()) and ".state/locks" not in str(path)
    }


def see(work: Callable[[], int | None], capsys: pytest.CaptureFixture[str]) -> Outcome:
    """Do it in this process; what it does not catch is what a user sees as a traceback."""
    capsys.readouterr()
    try:
        code = work() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except Exception as error:
        broken("traceback", f"{type(error).__name__}: {error}")
    streams = capsys.readouterr()
    return Outcome(code, streams.out + streams.err)


def run(*command: str, seconds: float = 60, **options: Any) -> Outcome:
    """Do it in a process of its own."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, check=False, **options
        )
    except subprocess.TimeoutExpired:
        broken("hang", f"longer than {seconds:g} s: {' '.join(command)}")
    return Outcome(done.returncode, done.stdout + done.stderr)
