"""Times come from alternating rounds and are compared round by round."""

import numpy as np

from benchmarks.harness import Contestant, Measured, race, ratio


class Bench:
    """A clock that only the contestants move, and the order in which they ran."""

    def __init__(self) -> None:
        self.now, self.order = 0.0, ""

    def contestant(self, name: str, durations: list[float], units: float = 1.0) -> Contestant:
        coming = iter(durations)

        def work() -> None:
            self.order += name
            self.now += next(coming)

        return Contestant(work, units)

    def clock(self) -> float:
        return self.now


def test_contestants_take_turns_in_alternating_order():
    bench = Bench()
    race({name: bench.contestant(name, [1.0] * 5) for name in "abc"}, rounds=3, clock=bench.clock)
    assert bench.order == "abc" + "abc" + "abc" + "cba" + "abc"


def test_first_call_is_apart_and_the_second_is_not_timed():
    bench = Bench()
    durations = [9.0, 100.0, 2.0, 8.0, 4.0]
    times = race({"a": bench.contestant("a", durations, units=2)}, rounds=3, clock=bench.clock)["a"]
    np.testing.assert_allclose(times.values, [1, 4, 2])
    assert times.median == 2
    assert times.compile_seconds == 9 - 4


def test_ratio_is_the_median_of_the_rounds_and_not_of_their_times():
    result = ratio(Measured(np.array([6.0, 40.0, 10.0])), Measured(np.array([3.0, 10.0, 2.0])))
    assert result == (4.0, 2.0, 5.0)
