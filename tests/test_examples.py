"""The examples run as their first line says, by nothing but the inside and a YAML reader."""

import os
import subprocess
import sys

from tests.conftest import ROOT


def test_the_allo_example_learns_a_map_of_its_own():
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "examples/allo.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scores = dict(line.rsplit(maxsplit=1) for line in done.stdout.splitlines())
    assert float(scores["cosine_mean"]) > 0.9
