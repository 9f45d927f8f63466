"""Other libraries are measured, and refused where they do other work."""

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import run
from benchmarks.actor_critic import parts
from benchmarks.harness import NotComparable
from benchmarks.peers import buffers, curves, host
from benchmarks.peers.buffers import Replay, numbered, refuse_other_draws
from quatrain.replay.rollouts.gae import advantages


def test_without_other_libraries_nothing_is_measured(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run.measured("peers", 5, tmp_path / "results") == 3
    error = "peers: .bench/peers lacks other libraries; `make bench-peers` installs them [exit 3]\n"
    assert capsys.readouterr().err == error


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
        with pytest.raises(NotComparable, match=message):
            refuse(**changes)


def test_rows_compare_each_library_and_the_limit(monkeypatch):
    monkeypatch.setattr(buffers, "CHECKED", 5_000)
    for name, value in {"STORED": 1000, "LARGE_STORED": 500, "LARGE_FLOATS": 7}.items():
        monkeypatch.setattr(host, name, value)
    monkeypatch.setattr(host, "LIBRARIES", {"cpprb": buffers.ours})
    rows = host.rows(1)
    assert [row.against for row in rows if row.before] == ["cpprb"] * 4
    monkeypatch.setattr(host, "LIBRARIES", {})
    assert [row.goal.against for row in host.rows(1)] == ["limit"]


def test_advantages_are_those_of_a_loop_over_steps():
    trace = parts.trace_of("[16, 128]")
    result, later = torch.zeros_like(trace.rewards), torch.zeros_like(trace.rewards[0])
    for time in reversed(range(len(result))):
        going = (~trace.terminated[time]).float()
        target = trace.rewards[time] + parts.DISCOUNT * going * trace.next_values[time]
        later = target - trace.values[time] + parts.DISCOUNT * parts.LAMBDA * going * later
        result[time] = later
    ours = advantages(trace, parts.DISCOUNT, parts.LAMBDA, "auto").advantage
    torch.testing.assert_close(ours, result, rtol=1e-3, atol=1e-3)


def curve_of(*scores: float, seconds: float) -> list[curves.Point]:
    steps = zip(curves.SHOWN, scores, strict=True)
    return [
        curves.Point(transitions, seconds * place, score, 1.0)
        for place, (transitions, score) in enumerate(steps, 1)
    ]


def test_the_same_return_is_one_that_each_seed_of_the_other_library_ends_with():
    """Both have it before their end; a seed that never has it is counted, and has no time."""
    peer = [curve_of(1.0, 6.0, 5.0, 5.0, seconds=2.0), curve_of(1.0, 2.0, 3.0, 6.0, seconds=2.0)]
    ours = [curve_of(2.0, 5.5, 6.0, 7.0, seconds=3.0), curve_of(1.0, 2.0, 5.0, 4.0, seconds=3.0)]
    both = {curves.OURS: ours, curves.PEER: peer}
    *_, same = curves.rows_of(both)
    assert same.name == "PPO on colonies, to the return that stable-baselines3 ends with"
    assert (same.ours.values, same.before.values) == ([6.0, 9.0], [4.0, 8.0])
    assert curves.lines_of(both)[-1].endswith(
        "ours 2 of 2 seeds, median 147,456 transitions and 7.5 s; "
        "stable-baselines3 2 of 2 seeds, median 196,608 transitions and 6.0 s"
    )
    both[curves.OURS] = [ours[0], curve_of(1.0, 2.0, 3.0, 4.0, seconds=3.0)]
    assert [row.name for row in curves.rows_of(both)][-1].endswith("294,912 transitions")
    assert "ours 1 of 2 seeds, median 98,304" in curves.lines_of(both)[-1]
