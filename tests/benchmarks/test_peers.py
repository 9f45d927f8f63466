"""A library that does not reach the goal is refused."""

import subprocess

import pytest

from benchmarks.peers import cartpole
from benchmarks.timing import NotComparable


def test_a_learner_that_does_not_hold_the_pole_is_refused(monkeypatch):
    def ended(command, **_):
        return subprocess.CompletedProcess(command, int(command[-1] == "1"), "a line\n12.5\n")

    monkeypatch.setattr(cartpole.subprocess, "run", ended)
    assert cartpole.seconds("rejax", 0) == 12.5
    with pytest.raises(NotComparable, match="ours, seed 1: no return of 475 on CartPole-v1"):
        cartpole.rows()
