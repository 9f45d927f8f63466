"""Two of everything at once: the second one waits, or is refused with a line, and the results are
those of one.
"""

from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest

from pipeline.cli import main
from tests.campaign.command_works import PROMOTION
from tests.campaign.faulty_disk import waits
from tests.campaign.processes import STAGES, Body, Running, begin, stage_body, whole
from tests.campaign.promises import accepted, refused

# Before each operation on the disk, so that both are at work.
PAUSE_SECONDS = 0.01
TWICE = dict.fromkeys((*STAGES, "report", "gate --page", "params schema", "outcome"), 0)
TWICE |= {PROMOTION: 5, "preset": 5, "sync": 6}
"""What is done by two at once, and the code with which one of them may be refused."""
BESIDE = (
    ("allo evaluate", "train"),
    ("actor_critic evaluate", "collect"),
    ("allo train", "collect"),
)


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


@pytest.mark.parametrize("name", TWICE)
def test_two_of_one(name: str, tmp_path: Path):
    place = whole(name).begun_in(tmp_path / "project")
    for running in at_once(whole(name).body, whole(name).body, place):
        ends(running, {TWICE[name]} - {0})
    if name == "sync":  # one that gave up goes on later
        whole(name).done_again(place)
    whole(name).is_right_in(place)


@pytest.mark.parametrize(("name", "other"), BESIDE)
def test_a_stage_beside_one_that_writes_what_it_reads(name: str, other: str, tmp_path: Path):
    """It reads the old or the new, or refuses what is neither."""
    place = whole(name).begun_in(tmp_path / "project")
    model = name.partition(" ")[0]
    reading, writing = at_once(whole(name).body, partial(stage_body, other, model), place)
    ends(writing)
    ends(reading, {3})
    whole(name).done_again(place)


@pytest.mark.full
def test_a_gate_beside_a_promotion_judges_by_the_old_or_the_new_baselines(tmp_path: Path):
    promotion = whole(PROMOTION)
    place = promotion.begun_in(tmp_path / "project")
    for running in at_once(partial(main, ["gate"]), promotion.body, place):
        ends(running)
    promotion.is_right_in(place)
