"""Each stage and command dies before its n-th operation on the disk, and again sooner, or finds the
disk full from its n-th write on: each file is old or new, and the next life ends as if nothing had
happened.
"""

import os
from functools import cache

import pytest

from tests.campaign import command_works
from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.campaign.works import TRIED, VERBS, stages_of
from tests.pipeline.small_project import shared_folder

POINTS = int(os.environ.get("POINTS", "6"))
"""Of each work and fault, spread evenly over all of them."""
ROWS = [f"{form} {verb}" for form in TRIED for verb in VERBS] + command_works.COMMANDS


@cache
def reference_of(name: str) -> Undisturbed:
    root = shared_folder() / "crashes" / name.replace(" ", "-")
    works = command_works.commands(root)
    if name not in command_works.COMMANDS:
        works = stages_of(name.partition(" ")[0], root)
    return undisturbed(next(work for work in works if work.name == name), root)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_moment_loses_nothing(fault: Fault, name: str):
    reference = reference_of(name)
    count = reference.points[fault]
    tries = min(count, POINTS)
    for point in [1 + number * count // tries for number in range(tries)]:
        attempt(fault, reference, shared_folder() / name.replace(" ", "-"), point)
