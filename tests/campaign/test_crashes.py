"""Each stage and command dies before its n-th operation on the disk, and again sooner, or finds the
disk full from its n-th write on: each file is old or new, and the next life ends as if nothing had
happened.
"""

from functools import cache

import pytest

from tests.campaign import command_works
from tests.campaign.crash import spread, work_of
from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.campaign.works import TRIED, VERBS
from tests.pipeline.small_project import shared_folder

# Of each work and fault; `make crash` tries more.
POINTS = 6
ROWS = [f"{form} {verb}" for form in TRIED for verb in VERBS] + command_works.COMMANDS


@cache
def reference_of(name: str) -> Undisturbed:
    root = shared_folder() / "crashes" / name.replace(" ", "-")
    return undisturbed(work_of(name, root), root)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_moment_loses_nothing(fault: Fault, name: str):
    reference = reference_of(name)
    for point in spread(reference.points[fault], POINTS):
        attempt(fault, reference, shared_folder() / name.replace(" ", "-"), point)
