"""programs -> their times, and the refusal of results that differ"""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from scipy.stats import chisquare

from benchmarks.harness import Contestant, Measured, NotComparable, Row, Without, race, repeat


class Continued:
    """Runs `advance(state) -> (state, result)`, from the last state in each call."""

    def __init__(self, advance: Callable[[Any], tuple[Any, Any]], state: Any) -> None:
        self.advance, self.state = advance, state

    def __call__(self) -> None:
        self.state, _ = jax.block_until_ready(self.advance(self.state))


def timed(
    works: Mapping[str, Callable[[], Any] | Contestant], rounds: int, **units: float
) -> dict[str, Measured]:
    """Measures contestants, and short works: repeated, each until its arrays are there."""

    def contestant(name: str, work: Any) -> Contestant:
        if isinstance(work, Contestant):
            return work
        return repeat(lambda: jax.block_until_ready(work()), units.get(name, 1))

    return race({name: contestant(name, work) for name, work in works.items()}, rounds)


def declaring(times: Mapping[str, Measured], unit: str, **common: Any) -> Callable[..., Row]:
    """Returns a function that makes a row of named times; `ours` and `before` if not named."""

    def row(name: str, **declared: Any) -> Row:
        fields = {"ours": "ours", "before": "before"} | common | declared
        for side in {"ours", "before", "seed_way", "limit"} & fields.keys():
            fields[side] = times[fields[side]] if fields[side] else None
        if "without" in fields:
            what, side = fields["without"]
            fields["without"] = Without(what, times[side])
        return Row(name, unit, **fields)

    return row


def refuse_difference(
    what: str, results: Mapping[str, Any], rtol: float = 0.0, atol: float = 0.0
) -> None:
    """Raises NotComparable unless all results equal the first, leaf by leaf.

    `atol` is relative to an array's largest entry, if that is above 1.
    """
    first, *others = results
    expected = jax.tree.map(np.asarray, jax.tree.leaves(results[first]))
    for name in others:
        for leaf, other in zip(jax.tree.leaves(results[name]), expected, strict=True):
            tolerance = atol * max(1.0, float(np.abs(other).max()))
            if np.shape(leaf) != other.shape or not np.allclose(leaf, other, rtol, tolerance):
                raise NotComparable(f"{what}: {name} differs from {first}")


def refuse_other_frequencies(what: str, counts: np.ndarray, expected: np.ndarray) -> None:
    """Raises NotComparable unless counts are as expected: 0 where that is 0, and by chi-square."""
    often = expected >= 5
    observed, frequencies = counts[often], expected[often]
    if expected[~often].any():
        observed = np.append(observed, counts[~often].sum())
        frequencies = np.append(frequencies, expected[~often].sum())
    if counts[expected == 0].any() or chisquare(observed, frequencies).pvalue < 1e-6:
        raise NotComparable(f"{what}: {counts.sum():,} samples do not follow the sampling law")
