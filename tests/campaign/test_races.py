"""Two of everything at once: the second one waits, or is refused with a line, and the results are
those of one.
"""

import shutil
from collections.abc import Collection
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from tests.campaign.faulty_disk import waits
from tests.campaign.lives import nobody_holds_a_lock, nothing_half_written
from tests.campaign.processes import Body, Running, begin, stage_body
from tests.campaign.promises import accepted, broken, refused
from tests.campaign.test_kills import whole
from tests.campaign.works import LEARNERS, VERBS

# Before each operation on the disk, so that both are at work.
PAUSE_SECONDS = 0.01
STAGES = [f"{learner} {verb}" for learner, verb in zip(LEARNERS, cycle(VERBS), strict=False)]
COMMANDS = ["promote all", "report", "gate --page", "schema", "preset", "outcome"]
PAIRS = (("evaluate", "train"), ("evaluate", "collect"), ("train", "collect"))
BESIDE = [
    (f"{learner} {first}", second)
    for learner, (first, second) in zip(LEARNERS, cycle(PAIRS), strict=False)
]


def at_once(first: Body, second: Body, folder: Path) -> tuple[Running, Running]:
    happens = partial(waits, PAUSE_SECONDS)
    running = [begin(body, folder, str(n), happens) for n, body in enumerate((first, second))]
    return running[0], running[1]


def ends(running: Running, refusals: Collection[int] = ()) -> None:
    """It does its work, or says in one line why it does not."""
    ending = running.ended()
    if ending.code in refusals:
        refused(ending, ending.code)
    else:
        accepted(ending)


def project_of(name: str, folder: Path) -> Path:
    shutil.copytree(whole(name).work.start, folder, symlinks=True)
    return folder


def the_results_are_right(name: str, folder: Path) -> None:
    reference = whole(name)
    if reference.work.results(folder) != reference.results:
        broken("lost", f"{name} has other results")
    nothing_half_written(folder)
    nobody_holds_a_lock(folder)


@pytest.mark.parametrize("name", STAGES + COMMANDS)
def test_two_of_one(name: str, tmp_path: Path):
    place = project_of(name, tmp_path / "project")
    for running in at_once(whole(name).body, whole(name).body, place):
        ends(running, refusals={5} if name == "preset" else ())
    the_results_are_right(name, place)


@pytest.mark.parametrize(("name", "other"), BESIDE)
def test_a_stage_beside_one_that_writes_what_it_reads(name: str, other: str, tmp_path: Path):
    """It reads the old or the new, or refuses what is neither."""
    place = project_of(name, tmp_path / "project")
    model = LEARNERS[name.partition(" ")[0]][0]
    reading, writing = at_once(whole(name).body, partial(stage_body, other, model), place)
    ends(writing)
    ends(reading, refusals={3})
    accepted(begin(whole(name).body, place, "again").ended())
    the_results_are_right(name, place)


def test_two_syncs_deliver_once(tmp_path: Path):
    place = project_of("sync", tmp_path / "project")
    for running in at_once(whole("sync").body, whole("sync").body, place):
        ends(running, refusals={6})
    accepted(begin(whole("sync").body, place, "again").ended())
    the_results_are_right("sync", place)
