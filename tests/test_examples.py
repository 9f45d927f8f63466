"""Tests that the examples run with the package and a YAML reader alone, and learn."""

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.full


def scores_of(example: str) -> dict[str, float]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, f"examples/{example}.py"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    named = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()]
    return {name: float(value) for name, value in named}


def test_the_allo_example_learns_a_map_of_its_own():
    assert scores_of("allo")["cosine_mean"] > 0.9


def test_the_iqn_example_learns_a_map_of_its_own():
    assert scores_of("iqn")["score"] > 0.5


def test_the_actor_critic_example_learns_a_plate_of_its_own():
    assert scores_of("actor_critic")["margin_over_constant"] > 0


def test_the_active_dynamics_example_learns_a_field_of_its_own_sooner_by_asking():
    scores = scores_of("active_dynamics")
    assert scores["field_nrmse.active"] < scores["field_nrmse.random"] < scores["affine_field"]


def test_the_example_of_an_own_loop_keeps_the_newest_steps_and_draws_from_them():
    scores = scores_of("own_loop")
    assert (scores["transitions held"], scores["batches"]) == (2000, 1186)
    assert 0 < scores["share that fell"] < 0.2
