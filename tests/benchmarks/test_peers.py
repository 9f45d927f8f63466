"""Other libraries are refused where they do other work, or fail."""

import subprocess

import numpy as np
import pytest

from benchmarks import timing
from benchmarks.peers import cartpole, replay
from benchmarks.peers.replay import Transition, check_draws, numbered
from benchmarks.rows import OURS
from benchmarks.timing import NotComparable


def drawn(data: Transition, most: int = 1000, later: int = 0, **columns) -> Transition:
    numbers = np.random.default_rng(0).integers(0, most - later, 20_000)
    batch = Transition(*(column[numbers] for column in data))
    return batch._replace(next_obs=data.next_obs[numbers + later], **columns)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("it: 20,000 samples do not follow the sampling law", {"most": 990}),
        ("it: draws transitions in parts of several", {"later": 1}),
        ("samples do not follow", {"reward": np.full(20_000, 1000.0)}),
    ],
    ids=["law", "parts", "others"],
)
def test_draws_of_other_transitions_are_refused(message, changes):
    data = numbered(1000, 3)
    check_draws("it", drawn(data), data)
    with pytest.raises(NotComparable, match=message):
        check_draws("it", drawn(data, **changes), data)


def test_a_row_has_ours_and_each_library(monkeypatch):
    monkeypatch.setattr(replay, "CHECKED", 5_000)
    monkeypatch.setattr(replay, "LIBRARIES", {OURS: replay.ours, "another": replay.ours})
    monkeypatch.setattr(timing, "MOST_CALLS", 1)
    row = replay.draw_row(1, 7, 1000)
    assert [*row.sides] == [OURS, "another"]


def test_a_learner_that_does_not_hold_the_pole_is_refused(monkeypatch):
    def ended(command, **_):
        return subprocess.CompletedProcess(command, int(command[-1] == "1"), f"a line\n{12.5}\n")

    monkeypatch.setattr(cartpole.subprocess, "run", ended)
    assert cartpole.seconds("rejax", 0) == 12.5
    with pytest.raises(NotComparable, match="ours, seed 1: no return of 475 on CartPole-v1"):
        cartpole.rows()
