"""Processes that get a signal at moments spread over their disk's operations: each ends with the
code of the signal, and the next one with the results of an undisturbed one.
"""

import shutil
import signal
from functools import cache, partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.campaign.crash import work_of
from tests.campaign.faulty_disk import signals
from tests.campaign.lives import nobody_holds_a_lock, nothing_half_written
from tests.campaign.processes import Body, begin, stage_body
from tests.campaign.promises import accepted, broken
from tests.campaign.works import LEARNERS, VERBS, Work, folder

SIGNALS: dict[str, tuple[tuple[int, ...], set[int]]] = {
    "SIGKILL": ((signal.SIGKILL,), {-signal.SIGKILL}),
    "SIGTERM": ((signal.SIGTERM,), {143, -signal.SIGTERM}),
    "SIGINT": ((signal.SIGINT,), {130}),
    "SIGINT twice": ((signal.SIGINT, signal.SIGINT), {130}),
}
"""By name: what is sent, and how a process may end. A command has nothing to save at SIGTERM."""
SHARES = {"collect": 0.5, "train": 0.6, "evaluate": 0.4}
"""Of its operations, the share that a process has done when the signal comes."""
OTHERS = {"promote all": (0.2, 0.5, 0.8), "preset": (0.8, 0.2, 0.5), "sync": (0.5, 0.8, 0.2)}
STAGES = [f"{learner} {verb}" for learner in LEARNERS for verb in VERBS]
ROWS = [
    (name, SHARES[name.rpartition(" ")[2]], sent)
    for name, sent in zip(STAGES, cycle(SIGNALS), strict=False)
]
"""Each stage of each learner, each verb with each signal."""
ROWS += [
    (name, share, sent)
    for name, shares in OTHERS.items()
    for share, sent in zip(shares, SIGNALS, strict=False)
]


class Whole(NamedTuple):
    """Holds what a process does undisturbed, and in how many operations."""

    work: Work
    body: Body
    results: dict[str, Any]
    points: int


@cache
def whole(name: str) -> Whole:
    learner, _, verb = name.partition(" ")
    place = folder() / "whole" / name.replace(" ", "-")
    work = work_of(name, place.with_name(f"start of {place.name}"))
    body: Body = work.run
    if learner in LEARNERS:
        body = partial(stage_body, verb, LEARNERS[learner][0])
    shutil.copytree(work.start, place, symlinks=True)
    running = begin(body, place, "run")
    accepted(running.ended())
    return Whole(work, body, work.results(place), running.points)


@pytest.mark.parametrize(("name", "share", "sent"), ROWS)
def test_a_signal_at_any_moment_loses_nothing(name: str, share: float, sent: str, tmp_path: Path):
    reference = whole(name)
    numbers, codes = SIGNALS[sent]
    place = tmp_path / "project"
    shutil.copytree(reference.work.start, place, symlinks=True)
    at = 1 + int(share * reference.points)
    ending = begin(reference.body, place, "signalled", partial(signals, at, numbers)).ended()
    if ending.code not in codes or "Traceback" in ending.said:
        broken("wrong code", f"exit {ending.code} after {sent}: {ending.said}")
    accepted(begin(reference.body, place, "again").ended())
    if reference.work.results(place) != reference.results:
        broken("lost", f"{name} differs after {sent} at operation {at}")
    nothing_half_written(place)
    nobody_holds_a_lock(place)
