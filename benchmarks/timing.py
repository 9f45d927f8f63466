"""works -> times: all sides by turns, so that a busy machine slows them alike

And the refusal to compare sides that do not compute the same.
"""

import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax
import numpy as np
from scipy.stats import chisquare

from benchmarks.rows import Times

Work = Callable[[], object]
TURN, MOST_CALLS = 0.02, 20_000
"""Seconds of a turn, or longer where a call takes longer; calls in a turn."""


class NotComparable(Exception):
    """Signals that two sides do not do the same: their times must not be compared."""


def race(
    works: Mapping[str, Work],
    rounds: int,
    units: Mapping[str, float] = MappingProxyType({}),
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Times]:
    """Times every side in every round. A call counts as `units` of its side, 1 if not named.

    A call must return when its work is done (see `ready`). The first, which compiles, is timed
    apart; the second tells how many calls fill a turn. Every other round runs the sides in reverse,
    so that none always follows the same other. `clock`: `time.process_time` for CPU seconds.
    """

    def seconds(name: str, calls: int = 1) -> float:
        begin = clock()
        for _ in range(calls):
            works[name]()
        return (clock() - begin) / calls

    print(f"  {', '.join(works)}", file=sys.stderr, flush=True)
    first = {name: seconds(name) for name in works}
    calls = {
        name: max(1, min(MOST_CALLS, round(TURN / max(seconds(name), 1e-9)))) for name in works
    }
    used: dict[str, list[float]] = {name: [] for name in works}
    for index in range(rounds):
        for name in list(works)[:: -1 if index % 2 else 1]:
            used[name].append(seconds(name, calls[name]))
    return {
        name: Times(
            [each / units.get(name, 1) for each in used[name]],
            max(0.0, first[name] - float(np.median(used[name]))),
        )
        for name in works
    }


def ready(work: Callable[[], Any]) -> Work:
    """Returns the work until its JAX arrays are there."""
    return lambda: jax.block_until_ready(work())


class Continued:
    """Runs `advance(state) -> (state, result)`, from the last state in each call."""

    def __init__(self, advance: Callable[[Any], tuple[Any, Any]], state: Any) -> None:
        self.advance, self.state = advance, state

    def __call__(self) -> None:
        self.state, _ = jax.block_until_ready(self.advance(self.state))


def check_same(what: str, results: Mapping[str, Any], rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raises NotComparable unless all results (arrays or tensors in tuples, lists, dictionaries)
    equal the first.

    `atol` is relative to an array's largest entry, if that is above 1.
    """
    first, *others = results
    expected = [_array(leaf) for leaf in jax.tree.leaves(results[first])]
    for name in others:
        for leaf, other in zip(jax.tree.leaves(results[name]), expected, strict=True):
            array, tolerance = _array(leaf), atol * max(1.0, float(np.abs(other).max(initial=0)))
            if array.shape != other.shape or not np.allclose(array, other, rtol, tolerance):
                raise NotComparable(f"{what}: {name} differs from {first}")


def _array(leaf: Any) -> np.ndarray:
    return np.asarray(leaf.detach() if hasattr(leaf, "detach") else leaf)


def check_frequencies(what: str, counts: np.ndarray, expected: np.ndarray) -> None:
    """Raises NotComparable unless counts are as expected: 0 where that is 0, and by chi-square."""
    often = expected >= 5
    observed, frequencies = counts[often], expected[often]
    if expected[~often].any():
        observed = np.append(observed, counts[~often].sum())
        frequencies = np.append(frequencies, expected[~often].sum())
    if counts[expected == 0].any() or chisquare(observed, frequencies).pvalue < 1e-6:
        raise NotComparable(f"{what}: {counts.sum():,} samples do not follow the sampling law")
