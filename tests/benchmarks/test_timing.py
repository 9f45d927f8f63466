"""Times come from alternating rounds, and sides that do not do the same are refused."""

from functools import partial

import numpy as np
import pytest
import torch

from benchmarks import timing
from benchmarks.timing import NotComparable, check_frequencies, check_same, race


def test_sides_alternate_the_first_call_is_apart_and_the_second_fills_the_turn(monkeypatch):
    monkeypatch.setattr(timing, "TURN", 0.2)
    now, order = [0.0], []
    durations = {name: iter([9, 1, 2, 8, 4]) for name in "abc"} | {"d": iter([0.1] * 8)}

    def work(name: str) -> None:
        order.append(name)
        now[0] += next(durations[name])

    works = {name: partial(work, name) for name in "abcd"}
    times = race(works, 3, {"a": 2, "b": 2}, clock=lambda: now[0])
    assert "".join(order) == "abcd" + "abcd" + "abcdd" + "ddcba" + "abcdd"
    assert [times[name].values for name in "abc"] == [[1, 4, 2], [1, 4, 2], [2, 8, 4]]
    assert times["d"].values == pytest.approx([0.1] * 3)
    assert (times["a"].compile_seconds, times["d"].compile_seconds) == (9 - 4, pytest.approx(0))


def test_other_results_are_refused_within_the_tolerance_of_the_largest_entry():
    ours = {"loss": np.float32(2), "gradient": [torch.tensor([1000.0, 0.0], requires_grad=True)]}
    near = {"loss": 2.0, "gradient": [np.array([1000.0, 0.009])]}
    check_same("step", {"ours": ours, "plain": near}, atol=1e-5)
    for other in (near | {"loss": 2.1}, near | {"gradient": [np.array([1000.0])]}):
        with pytest.raises(NotComparable, match="step: plain differs from ours"):
            check_same("step", {"ours": ours, "plain": other}, atol=1e-5)


def test_other_frequencies_are_refused():
    check_frequencies("dice", np.array([52, 48, 0]), np.array([50.0, 50.0, 0.0]))
    for counts, expected in (([90, 10], [50.0, 50.0]), ([50, 50, 1], [50.5, 50.5, 0.0])):
        with pytest.raises(NotComparable, match=r"dice: 10[01] samples do not follow"):
            check_frequencies("dice", np.array(counts), np.array(expected))
