"""The examples run outside of a checkout with the package alone, and learn."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import ROOT

LEARNS: dict[str, Callable[[dict[str, float]], bool]] = {
    "allo": lambda scores: scores["cosine_mean"] > 0.9,
    "iqn": lambda scores: scores["score"] > 0.5,
    "actor_critic": lambda scores: scores["margin_over_constant"] > 0,
    "active_dynamics": lambda scores: (
        scores["field_nrmse.active"] < min(scores["field_nrmse.random"], scores["affine_field"])
    ),
    "own_loop": lambda scores: (
        scores["steps of the last 50"] < 20 < 60 < scores["steps of the first 50"]
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("example", [path.stem for path in (ROOT / "examples").glob("*.py")])
def test_an_example_runs_and_learns(example: str, tmp_path: Path):
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    environment.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
    command = [sys.executable, str(ROOT / "examples" / f"{example}.py")]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    named = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()]
    scores = {name: float(value) for name, value in named}
    assert LEARNS[example](scores), scores
