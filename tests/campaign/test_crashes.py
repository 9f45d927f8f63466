"""Each stage and command dies before its n-th operation on the disk, and again sooner, or finds the
disk full from its n-th write on: each file is old or new, and the next life ends as if nothing had
happened.
"""

import re
from functools import cache

import pytest

from tests.campaign import command_works, crash
from tests.campaign.crash import spread, work_of
from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.campaign.works import TRIED, VERBS
from tests.pipeline.fixture_types import Capture, Patch
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


def test_points_are_spread_over_all_of_them():
    assert spread(10, 10) == list(range(1, 11))
    assert spread(10, 4) == [1, 3, 6, 8]
    assert spread(3, 6) == [1, 2, 3]
    assert spread(0, 6) == []


def test_a_point_that_is_not_survived_is_a_failure(monkeypatch: Patch, capsys: Capture):
    for survived, code in ((2, 0), (1, 1)):
        rows = [["allo train", 1000, 2, survived, 3, 3, 3]]
        monkeypatch.setattr(crash, "campaign", lambda *_, rows=rows: iter(rows))
        assert crash.main(["allo"]) == code
        assert re.search(rf"all .* 1,000 \| +2 \| +{survived} \| +3", capsys.readouterr().out)
