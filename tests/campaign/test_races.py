"""Two of everything at once: the second one waits, or is refused with a line, and the results are
those of one.
"""

import shutil
import time
from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from pipeline.commands import gate
from pipeline.commands import repro as repro_command
from pipeline.dvc import repro
from tests.campaign.faulty_disk import waits
from tests.campaign.lives import nobody_holds_a_lock, nothing_half_written
from tests.campaign.processes import Body, Running, begin, stage_body
from tests.campaign.promises import accepted, broken, refused
from tests.campaign.test_kills import whole
from tests.campaign.works import LEARNERS, VERBS
from tests.conftest import SMALL
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_checkout import call, clone, git, start
from tests.pipeline.small_project import NOBODY, Project

# Before each operation on the disk, so that both are at work.
PAUSE_SECONDS = 0.01
# Longer than a command waits for one that is about to end.
LONG_SECONDS = 6.0
STAGES = [f"{learner} {verb}" for learner in LEARNERS for verb in VERBS]
COMMANDS = ["promote all", "report", "gate --page", "schema", "preset", "outcome"]
BESIDE = [
    (f"{learner} {first}", second)
    for learner in LEARNERS
    for first, second in (("evaluate", "train"), ("evaluate", "collect"), ("train", "collect"))
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


@pytest.mark.parametrize("name", ["promote all", "report", *(f"{m} evaluate" for m in LEARNERS)])
def test_the_gate_beside_what_writes_its_files(name: str, tmp_path: Path):
    place = project_of(name, tmp_path / "project")
    learner = name.partition(" ")[0]
    models = [LEARNERS[learner][0]] if learner in LEARNERS else []
    writing, gating = at_once(whole(name).body, partial(gate_often, models), place)
    ends(writing)
    ending = gating.ended()
    if "Traceback" in ending.said or ending.code not in (0, 4):
        broken("traceback" if "Traceback" in ending.said else "wrong code", f"{ending}")
    the_results_are_right(name, place)


def gate_often(models: list[str]) -> int:
    return max(gate.main(models) for _ in range(10))


def test_two_syncs_deliver_once(tmp_path: Path):
    place = project_of("sync", tmp_path / "project")
    for running in at_once(whole("sync").body, whole("sync").body, place):
        ends(running, refusals={6})
    accepted(begin(whole("sync").body, place, "again").ended())
    the_results_are_right("sync", place)


def run_repro() -> int:
    """A run whose stages take long, and do nothing."""
    repro.run_alone = lambda *_: time.sleep(LONG_SECONDS) or 0
    return repro_command.main(["--preset", "default"])


@pytest.mark.parametrize("second", ["repro", "promote"])
def test_a_command_beside_a_run_is_refused(second: str, tmp_path: Path):
    place = project_of("promote all", tmp_path / "project")
    body = {"repro": run_repro, "promote": whole("promote all").body}[second]
    running = begin(run_repro, place, "first")
    until((place / ".state" / "locks" / "repro" / "lock").exists)
    refused(begin(body, place, "second").ended(), 5, "repro is at work in process [0-9]+; wait")
    accepted(running.ended())
    accepted(begin(body, place, "again").ended())


@pytest.mark.parametrize("learner", list(LEARNERS)[:2])
def test_two_runs_with_dvc(learner: str, tmp_path: Path):
    """The second one is refused before it starts dvc, and the results are those of one run."""
    away = {"MLFLOW_TRACKING_URI": NOBODY}
    command = ("python", "-m", "pipeline.commands.repro", learner)
    place = clone(tmp_path / "one")
    Project(place).choose(SMALL)
    git(place, "commit", "-q", "-a", "-m", "small")
    other = clone(tmp_path / "other", place)
    call(place, *command, code=4, **away)
    first = start(other, *command, **away)
    until((other / ".state" / "locks" / "repro" / "lock").exists)
    said = call(other, *command, code=5, **away)
    assert "repro is at work in process" in said
    with first:
        said = first.communicate()[0]
    assert first.returncode == 4, said
    assert Project(other).hashes() == Project(place).hashes()
    assert (other / "dvc.lock").read_bytes() == (place / "dvc.lock").read_bytes()
