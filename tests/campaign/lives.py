"""A work that dies, or whose disk is full, and that is done again: what must be as if nothing had
happened.
"""

import fcntl
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from quatrain.storage.atomic_write import PARTIAL
from tests.campaign.faulty_disk import Fault, FaultyDisk, Killed, Points, dies, is_full
from tests.campaign.works import Work, files_in, inside

# Of the life after a death at n: it ends before the n/3-th.
SOONER = 3
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


class Undisturbed(NamedTuple):
    """Holds a work, its results, the files that it had before and has afterwards, and how many
    operations change its files, or take space.
    """

    work: Work
    results: dict[str, Any]
    before: dict[str, Any]
    after: dict[str, Any]
    points: Points


def undisturbed(work: Work, root: Path) -> Undisturbed:
    """Does the work once, without any fault."""
    folder = copied(work, root / "undisturbed")
    with FaultyDisk(folder) as disk:
        accepted(live(work, folder))
    before, after = results_of(work.start, work), results_of(folder, work)
    return Undisturbed(work, work.results(folder), before, after, disk.points)


def results_of(folder: Path, work: Work) -> dict[str, bytes]:
    return files_in(folder, *work.writes)


def copied(work: Work, folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(work.start, folder, symlinks=True)
    return folder


def live(work: Work, folder: Path) -> Outcome:
    """Does the work in a folder; exit code -9 if it died."""
    said = StringIO()
    with inside(folder), redirect_stdout(said), redirect_stderr(said):
        try:
            code = work.run()
        except Killed:
            code = -9
    return Outcome(code, said.getvalue())


def attempt(fault: Fault, reference: Undisturbed, root: Path, point: int) -> None:
    """Does the work with a fault at an operation, in a folder of its own."""
    folder = copied(reference.work, root / f"{fault}-{point}")
    {"killed": die, "full": fill_up}[fault](reference, folder, point)
    shutil.rmtree(folder)


def die(reference: Undisturbed, folder: Path, point: int) -> None:
    """Dies before an operation, then sooner, then is left alone."""
    for at in (point, max(1, point // SOONER)):
        with FaultyDisk(folder, partial(dies, at)) as disk:
            ending = live(reference.work, folder)
        if (ending.code == -9) != (disk.points["killed"] >= at):
            broken("silent", f"it went on after its end: {ending}")
        whole(reference, folder)
    ends_well(reference, folder)


def fill_up(reference: Undisturbed, folder: Path, point: int) -> None:
    """Finds the disk full from a write on, is told so, and is done again with space."""
    with FaultyDisk(folder, partial(is_full, point)):
        ending = live(reference.work, folder)
    refused(ending, reference.work.full, "cannot write|No space left|pending")
    whole(reference, folder)
    nothing_half_written(folder)
    ends_well(reference, folder)


def ends_well(reference: Undisturbed, folder: Path) -> None:
    """Left alone, the work ends with the same results, and leaves nothing behind."""
    accepted(live(reference.work, folder))
    results = reference.work.results(folder)
    if results != reference.results:
        differing = {
            name
            for name in results.keys() | reference.results.keys()
            if results.get(name) != reference.results.get(name)
        }
        broken("lost", f"differs from an undisturbed one: {sorted(differing)}")
    nothing_half_written(folder)
    nobody_holds_a_lock(folder)


def whole(reference: Undisturbed, folder: Path) -> None:
    """Each file is the old one or the new one, and no old one is missing that stays."""
    present = results_of(folder, reference.work)
    for name in reference.before.keys() | reference.after.keys() | present.keys():
        allowed = (reference.before.get(name), reference.after.get(name))
        if present.get(name) not in allowed and not name.endswith(PARTIAL):
            broken("lost", f"{name} is neither the old nor the new file")


def nothing_half_written(folder: Path) -> None:
    left = [str(path.relative_to(folder)) for path in folder.rglob(f"*{PARTIAL}")]
    if left:
        broken("lost", f"left half-written: {left}")


def nobody_holds_a_lock(folder: Path) -> None:
    for path in folder.rglob("lock"):
        with path.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                broken("hang", f"{path} is still held")
