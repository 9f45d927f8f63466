"""Other libraries are measured where they are there, named where they are not, and refused where
they do other work.
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import run
from benchmarks.harness import NotTheSame
from benchmarks.peers import buffers, environment, gae, host, measure
from benchmarks.peers.buffers import Replay, numbered, refuse_other_draws
from tests.conftest import ROOT

LOCK = """# Made by `make lock`.
bad==2 \\
    --hash=sha256:aa
good==1.5 \\
    --hash=sha256:bb
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "requirements").mkdir()
    (tmp_path / ".bench" / "peers").mkdir(parents=True)
    (tmp_path / environment.LOCK).write_text(LOCK)
    return tmp_path


def failing(calls: list[list[str]], bad: str):
    """Installs nothing; fails as pip does if `bad` is among what is to be installed."""

    def called(command: list[str]) -> None:
        calls.append(command)
        expected = Path(command[-1]).read_text() if command[-2] == "-r" else command[-1]
        if bad in expected:
            raise subprocess.CalledProcessError(1, "pip", stderr="a\nERROR: no distribution\n")

    return called


def test_a_library_that_cannot_be_installed_leaves_the_others(project, monkeypatch, capsys):
    calls: list[list[str]] = []
    monkeypatch.setattr(environment, "called", failing(calls, "bad==2"))
    python, variables = environment.interpreter(project)
    assert python == project / ".bench/peers/bin/python"
    assert variables["PYTHONPATH"] == f"{project}/src:{project}"
    assert calls[1][-1] == environment.TORCH
    error = capsys.readouterr().err
    assert "ERROR: no distribution; installing one after the other" in error
    assert "bad==2 is not installed: ERROR: no distribution" in error
    assert "good" not in error
    assert not (project / ".bench/peers/.installed").exists()


def test_an_environment_is_made_once_for_each_lock(project, monkeypatch):
    calls: list[list[str]] = []
    monkeypatch.setattr(environment, "called", failing(calls, "no such thing"))
    for _ in range(2):
        environment.interpreter(project)
    assert len(calls) == 3
    (project / environment.LOCK).write_text(LOCK + "more==1\n")
    environment.interpreter(project)
    assert len(calls) == 6


def test_without_pytorch_nothing_is_measured(project, monkeypatch, capsys):
    monkeypatch.setattr(environment, "called", failing([], environment.TORCH))
    monkeypatch.chdir(project)
    assert run.measured("peers", 5, project / "results") == 3
    assert "not compared: ERROR: no distribution [exit 3]" in capsys.readouterr().err


def test_the_lock_holds_what_is_asked_for_with_hashes_and_no_torch():
    text = (ROOT / environment.LOCK).read_text()
    locked = dict(entry[1].split("==") for entry in environment.REQUIREMENT.finditer(text))
    asked = (ROOT / "requirements/peers.in").read_text()
    for name, _, exact in re.findall(r"^([a-z][\w.-]*)(==(.+))?$", asked, re.MULTILINE):
        assert locked[name] == (exact or locked[name])
    assert text.count("--hash=sha256:") == len(locked) == text.count("==")
    assert "torch" not in locked


def test_a_library_that_cannot_be_imported_is_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(measure, "MODULES", {"numpy": "numpy", "absent": "no_such_module"})
    message = "absent is not installed: ModuleNotFoundError: No module named 'no_such_module'"
    assert measure.importable() == (["numpy"], [message])


def test_draws_of_other_transitions_are_refused(monkeypatch):
    monkeypatch.setattr(buffers, "CHECKED", 20_000)
    rng = np.random.default_rng(0)
    data = numbered(1000, 3)

    def draw(most=1000, later=0, **columns):
        numbers = rng.integers(0, most - later, 64)
        batch = buffers.rows(data, numbers)
        return batch._replace(next_obs=data.next_obs[numbers + later], **columns)

    def refuse(**changes):
        refuse_other_draws("it", Replay(lambda: draw(**changes), lambda batch: batch), data, 64)

    refuse()
    for message, changes in {
        "it: 20,032 samples do not follow the sampling law": {"most": 990},
        "it: draws transitions in parts of several": {"later": 1},
        "samples do not follow": {"reward": np.full(64, 1000.0)},
    }.items():
        with pytest.raises(NotTheSame, match=message):
            refuse(**changes)


def test_rows_compare_each_library_and_the_limit(monkeypatch):
    monkeypatch.setattr(buffers, "CHECKED", 5_000)
    for name, value in {"STORED": 1000, "LARGE_STORED": 500, "LARGE_FLOATS": 7}.items():
        monkeypatch.setattr(host, name, value)
    monkeypatch.setitem(buffers.LIBRARIES, "cpprb", buffers.ours)
    rows = host.rows(["cpprb"], 1)
    assert [row.against for row in rows if row.before] == ["cpprb"] * 4
    assert [row.goal.against for row in host.rows([], 1)] == ["limit"]


def test_other_advantages_are_refused():
    trace = gae.trace_of("[16, 128]")
    result, later = torch.zeros_like(trace.rewards), torch.zeros_like(trace.rewards[0])
    for time in reversed(range(len(result))):
        going = (~trace.terminated[time]).float()
        target = trace.rewards[time] + gae.DISCOUNT * going * trace.next_values[time]
        later = target - trace.values[time] + gae.DISCOUNT * gae.LAMBDA * going * later
        result[time] = later
    sides = gae.contestants(trace, [])
    gae.refuse_others("advantages", sides | {"plain": lambda: result})
    with pytest.raises(NotTheSame, match="advantages: ours are others than those of wrong"):
        gae.refuse_others("advantages", sides | {"wrong": lambda: np.zeros((16, 128))})
