"""Stages and commands in processes of their own, which begin at once: they are forked from one that
has loaded what they need.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from pipeline.runtime import stage
from pipeline.storage.params_file import read_params
from tests.campaign.faulty_disk import FaultyDisk, Happens, nothing
from tests.campaign.promises import Outcome, broken
from tests.campaign.works import surroundings
from tests.pipeline.small_project import BODIES

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(["tests.campaign.preloaded"])
LONGEST_SECONDS = 90.0
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

    @property
    def points(self) -> int:
        """Returns how many operations on the disk it did to its end."""
        return int(self.output.with_suffix(".points").read_text())


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
    config = getattr(read_params(Path.cwd()), model)
    with surroundings(model, config):
        return stage.main(verb, "", BODIES[verb], [model])
