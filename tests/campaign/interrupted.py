"""The rows of `test_crashes` and `test_full_disk`: a work, and a part of the points to try."""

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path

from tests.campaign.command_works import COMMANDS
from tests.campaign.crash import COMMANDS as GROUP_OF_COMMANDS
from tests.campaign.crash import GROUPS, STRIDE, spread
from tests.campaign.faulty_disk import Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.campaign.works import LEARNERS, VERBS

# Rows of a stage; a command has one.
PARTS = 6
STAGES = [f"{learner} {verb}" for learner in LEARNERS for verb in VERBS]
ROWS = [(name, part) for name in STAGES for part in range(PARTS)]
ROWS += [(name, 0) for name in COMMANDS]


@cache
def folder() -> Path:
    """A folder of this process, for all of its references."""
    path = Path(tempfile.mkdtemp(prefix="campaign-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


@cache
def works_of(group: str) -> dict[str, Undisturbed]:
    """What each work of a group does undisturbed, once in a process."""
    root = folder() / group
    return {
        work.name: undisturbed(work, root / work.name.replace(" ", "-"))
        for work in GROUPS[group](root)
    }


def try_part(fault: Fault, name: str, part: int) -> int:
    """Tries the points of a row; returns how many."""
    group = name.partition(" ")[0] if name in STAGES else GROUP_OF_COMMANDS
    reference = works_of(group)[name]
    parts = PARTS if name in STAGES else 1
    points = spread(reference.points[fault], STRIDE, least=parts)[part::parts]
    for point in points:
        attempt(fault, reference, folder() / name.replace(" ", "-"), point)
    return len(points)
