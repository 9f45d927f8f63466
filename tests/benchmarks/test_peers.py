"""Other libraries are measured where they are there, named where they are not, and refused where
they do other work.
"""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.harness import Contestant
from benchmarks.peers import buffers, environment, gae, host, measure, run
from benchmarks.peers.buffers import Replay, Transition, numbered, refuse_other_draws
from benchmarks.table import NotTheSame, render
from tests.conftest import ROOT

LOCK = """# Made by `make lock`.
bad==2 \\
    --hash=sha256:aa
good==1.5 \\
    --hash=sha256:bb
"""


@pytest.fixture
def few(monkeypatch):
    """Rows in no time, with one library that is our own ring."""
    monkeypatch.setattr(buffers, "CHECKED", 5_000)
    for name, value in {
        "STORED": 1000,
        "LARGE_STORED": 500,
        "LARGE_FLOATS": 7,
        "TURN_SECONDS": 0.0,
    }.items():
        monkeypatch.setattr(host, name, value)
    monkeypatch.setattr(host, "CAPACITIES", (1000, 2000))
    monkeypatch.setitem(buffers.LIBRARIES, "cpprb", buffers.ours)
    for name in gae.SHAPES:
        monkeypatch.setitem(gae.SHAPES, name, (9, 1 if "T" in name or "episodes" in name else 4))


# The environment.


def project(tmp_path: Path) -> Path:
    (tmp_path / "requirements").mkdir()
    (tmp_path / environment.LOCK).write_text(LOCK)
    return tmp_path


def failing(calls: list[list[str]], bad: str):
    """Runs nothing; fails as pip does where `bad` is among what is to be installed."""

    def called(command: list[str]) -> None:
        calls.append(command)
        expected = Path(command[-1]).read_text() if command[-2] == "-r" else command[-1]
        if bad in expected:
            raise subprocess.CalledProcessError(
                1, "pip", stderr="a\nERROR: no matching distribution\n"
            )

    return called


def test_one_library_that_is_not_to_be_had_takes_no_other_along(tmp_path, monkeypatch, capsys):
    calls: list[list[str]] = []
    monkeypatch.setattr(environment, "called", failing(calls, "bad==2"))
    (tmp_path / ".bench/peers").mkdir(parents=True)
    result = environment.environment(project(tmp_path))
    assert result.missing == ["bad==2 is not installed: ERROR: no matching distribution"]
    assert result.python == tmp_path / ".bench/peers/bin/python"
    assert [call[-1] for call in calls[1:2]] == [environment.TORCH]
    assert "installing one after the other" in capsys.readouterr().err
    assert not (tmp_path / ".bench/peers/.installed").exists()


def test_an_environment_is_made_once_for_each_lock(tmp_path, monkeypatch):
    calls: list[list[str]] = []
    monkeypatch.setattr(environment, "called", failing(calls, "no such thing"))
    (tmp_path / ".bench/peers").mkdir(parents=True)
    root = project(tmp_path)
    assert environment.environment(root) == environment.environment(root)
    assert len(calls) == 3
    (root / environment.LOCK).write_text(LOCK + "more==1\n")
    environment.environment(root)
    assert len(calls) == 6


def test_without_pytorch_nothing_is_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(environment, "called", failing([], environment.TORCH))
    assert run.measured(project(tmp_path), 5, tmp_path / "results") == 3
    assert "not compared: ERROR: no matching distribution [exit 3]" in capsys.readouterr().err


def test_the_lock_holds_what_is_asked_for_with_hashes_and_no_torch():
    locked = (ROOT / environment.LOCK).read_text()
    result = dict(entry[1].split("==") for entry in environment.REQUIREMENT.finditer(locked))
    asked = (ROOT / "requirements/peers.in").read_text()
    for name, _, exact in re.findall(r"^([a-z][\w.-]*)(==(.+))?$", asked, re.MULTILINE):
        assert result[name] == (exact or result[name])
    assert locked.count("--hash=sha256:") == len(result) == locked.count("==")
    assert "torch" not in result


def test_fewer_than_five_rounds_are_refused(capsys):
    with pytest.raises(SystemExit):
        run.main(["--rounds", "4"])
    assert "--rounds 4: medians of fewer than 5 rounds say nothing" in capsys.readouterr().err


def test_a_library_that_cannot_be_imported_is_named_with_the_reason(monkeypatch):
    monkeypatch.setattr(measure, "MODULES", {"numpy": "numpy", "absent": "no_such_module_at_all"})
    result, notes = measure.importable()
    assert result == ["numpy"]
    assert notes == [
        "absent is not installed: ModuleNotFoundError: No module named 'no_such_module_at_all'"
    ]


# Replays on the host.


def drawing(draw) -> Replay:
    return Replay(draw, lambda drawn: drawn)


def test_draws_of_other_transitions_are_refused(monkeypatch):
    monkeypatch.setattr(buffers, "CHECKED", 20_000)
    data, rng = numbered(1000, 3), np.random.default_rng(0)

    def picked(numbers: np.ndarray) -> Transition:
        return buffers.rows(data, numbers)

    refuse_other_draws("even", drawing(lambda: picked(rng.integers(0, 1000, 64))), data, 64)
    with pytest.raises(NotTheSame, match="uneven: draws are not uniform over 1,000 transitions"):
        refuse_other_draws("uneven", drawing(lambda: picked(rng.integers(0, 990, 64))), data, 64)
    mixed = picked(np.arange(64))._replace(next_obs=data.next_obs[1:65])
    with pytest.raises(NotTheSame, match="mixed: draws transitions in parts of several"):
        refuse_other_draws("mixed", drawing(lambda: mixed), data, 64)
    unknown = picked(np.arange(64))._replace(reward=np.full(64, 1000.0))
    with pytest.raises(NotTheSame, match="unknown: draws a transition that was never added"):
        refuse_other_draws("unknown", drawing(lambda: unknown), data, 64)


@pytest.mark.usefixtures("few")
def test_rows_of_replays_are_well_formed():
    rows = host.rows(["cpprb"], 1)
    assert len(render(rows).splitlines()) == 2 + len(rows)
    assert [row.name for row in rows if not row.name.startswith(" ")] == [
        "draw of 256, 2 floats; before: cpprb",
        "draw of 256, 7 floats",
        "draw of 256, 7 floats; before: cpprb",
        "add of one, 2 floats; before: cpprb",
        "add of 1000, 2 floats; before: cpprb",
    ]
    assert [row.point.at for row in rows if row.point] == [1000, 2000, 32, 256, 2048]
    assert {row.against for row in rows if row.before} == {"cpprb"}


@pytest.mark.usefixtures("few")
def test_without_libraries_only_the_limit_is_told():
    rows = host.rows([], 1)
    assert [(row.name, row.goal.against) for row in rows] == [("draw of 256, 7 floats", "limit")]


def test_work_is_repeated_until_a_turn_lasts(monkeypatch):
    monkeypatch.setattr(host, "TURN_SECONDS", 12.0)
    ran: list[int] = []
    result = host.lasting(lambda: ran.append(1), clock=iter([0.0, 3.0]).__next__)
    assert isinstance(result, Contestant)
    assert (result.units, len(ran)) == (4, 2)
    result.run()
    assert len(ran) == 6


def test_the_unchecked_ring_keeps_what_the_checked_one_does():
    data = numbered(20, 2)
    rings = [kind(6, buffers.rows(data, 0)) for kind in (buffers.HostRing, buffers.Unchecked)]
    for ring in rings:
        for number in range(20):
            ring.add(buffers.rows(data, number))
    drawn = [ring.sample(np.random.default_rng(0), 30) for ring in rings]
    for item, other in zip(*drawn, strict=True):
        np.testing.assert_array_equal(item, other)


# Advantages.


@pytest.mark.usefixtures("few")
def test_rows_of_advantages_are_those_of_the_libraries_that_are_there(monkeypatch):
    assert gae.rows([], 1) == []
    monkeypatch.setattr(
        gae,
        "torchrl_contestants",
        lambda trace: {"torchrl, plain": lambda: plain_advantages(trace)},
    )
    rows = gae.rows(["torchrl"], 1)
    assert [row.name for row in rows] == [
        f"advantages, {name}; before: torchrl, plain" for name in gae.SHAPES
    ]
    assert {row.against for row in rows} == {"torchrl"}


def plain_advantages(trace: gae.Trace) -> tuple[torch.Tensor]:
    """Lanes first, then time, and an axis of features."""
    result, later = torch.zeros_like(trace.rewards), torch.zeros_like(trace.rewards[0])
    for time in reversed(range(len(result))):
        going = (~trace.terminated[time]).float()
        delta = (
            trace.rewards[time]
            + gae.DISCOUNT * going * trace.next_values[time]
            - trace.values[time]
        )
        result[time] = later = delta + gae.DISCOUNT * gae.LAMBDA * going * later
    return (result.T[..., None],)


def test_other_advantages_are_refused():
    trace = gae.trace_of("[16, 128]")
    gae.refuse_others("[16, 128]", trace, {"torchrl, plain": lambda: plain_advantages(trace)})
    with pytest.raises(
        NotTheSame,
        match=r"advantages, \[16, 128\]: ours are others than those of stable-baselines3",
    ):
        gae.refuse_others("[16, 128]", trace, {"stable-baselines3": lambda: np.zeros((16, 128))})
