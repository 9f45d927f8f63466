"""Stages and commands in processes of their own, which begin at once: they are forked from one that
has loaded what they need, and in which no framework has begun to work.
"""

import multiprocessing
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import cache, partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime import stage
from tests.campaign.crash import work_of
from tests.campaign.faulty_disk import FaultyDisk, Happens, nothing
from tests.campaign.lives import nobody_holds_a_lock, nothing_half_written
from tests.campaign.promises import Outcome, accepted, broken
from tests.campaign.works import PROCESSES, VERBS, Work, surroundings
from tests.pipeline.small_project import BODIES, shared_folder

FORKED = multiprocessing.get_context("forkserver")
LOADED = [f"quatrain.models.{name}.{part}" for name in PROCESSES for part in ("evaluate", "plots")]
LOADED += ["tests.campaign.command_works", "pipeline.tracking.sync", "pipeline.judging.promotion"]
FORKED.set_forkserver_preload(LOADED)
LONGEST_SECONDS = 90.0
STAGES = [f"{model} {verb}" for model in PROCESSES for verb in VERBS]
Body = Callable[[], int | None]


class Running(NamedTuple):
    process: BaseProcess
    output: Path

    def ended(self) -> Outcome:
        """Waits for it; below 0 is the signal that ended it."""
        self.process.join(LONGEST_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
            broken("hang", self.output.read_text())
        assert self.process.exitcode is not None
        return Outcome(self.process.exitcode, self.output.read_text())


def begin(body: Body, folder: Path, name: str, happens: Happens = nothing) -> Running:
    """Begins a command in a folder; its output goes into a file beside it."""
    output = folder.with_name(f"{folder.name}-{name}.txt")
    process = FORKED.Process(target=_live, args=(body, folder, output, happens))
    process.start()
    return Running(process, output)


def _live(body: Body, folder: Path, output: Path, happens: Happens) -> None:
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(folder)
    with FaultyDisk(folder, happens) as disk:
        code = body() or 0
    sys.stdout.flush()
    output.with_suffix(".points").write_text(str(disk.points["killed"]))
    os._exit(code)


def stage_body(verb: str, model: str) -> int:
    """Does what `python -m pipeline.VERB MODEL` does."""
    with surroundings(model):
        return stage.main(verb, "", BODIES[verb], [model])


class Whole(NamedTuple):
    """Holds what a process does undisturbed, and in how many operations on the disk."""

    work: Work
    body: Body
    results: dict[str, Any]
    points: int

    def begun_in(self, folder: Path) -> Path:
        shutil.copytree(self.work.start, folder, symlinks=True)
        return folder

    def done_again(self, folder: Path) -> None:
        accepted(begin(self.body, folder, "again").ended())
        self.is_right_in(folder)

    def is_right_in(self, folder: Path) -> None:
        """The results are those of an undisturbed one, and nothing else is left."""
        if self.work.results(folder) != self.results:
            broken("lost", f"{self.work.name} has other results")
        nothing_half_written(folder)
        nobody_holds_a_lock(folder)


@cache
def whole(name: str) -> Whole:
    model, _, verb = name.partition(" ")
    place = shared_folder() / "whole" / name.replace(" ", "-")
    work = work_of(name, place.with_name(f"start of {place.name}"))
    body: Body = partial(stage_body, verb, model) if name in STAGES else work.run
    shutil.copytree(work.start, place, symlinks=True)
    running = begin(body, place, "run")
    accepted(running.ended())
    points = int(running.output.with_suffix(".points").read_text())
    return Whole(work, body, work.results(place), points)
