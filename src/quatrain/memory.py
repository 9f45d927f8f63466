"""a config's least bytes, the machine's free bytes -> nothing, or one line that names the keys."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from quatrain.errors import DeviceFull

FLOAT, DOUBLE = 4, 8
# A weight of a learner has two moments of Adam beside it.
ADAM = 3 * FLOAT
GIB = 2**30
# What a stage of the smallest config takes.
PROCESS = 3 * GIB // 8
# Shares of the whole that are worth a word.
NAMED_SHARE = 0.01


class Needs(NamedTuple):
    """Holds the least bytes that each verb needs at once, by what they are for.

    They are sums of the largest arrays alone, so that nothing is refused that would fit. keys: of
    the model's section, that make them smaller.
    """

    collect: Mapping[str, int]
    train: Mapping[str, int]
    evaluate: Mapping[str, int]
    keys: Sequence[str]


def check_memory(model: str, verb: str, needs: Needs, free: int) -> None:
    """Checks that a verb's arrays fit.

    free: bytes that the machine, or this process's share of it, has left.

    Raises:
        DeviceFull: they do not; the line has the numbers, and the keys to lower.
    """
    parts = {"Python and its libraries": PROCESS, **getattr(needs, verb)}
    total = sum(parts.values())
    if total <= free:
        return
    named = ", ".join(
        f"{name} {in_gib(size)}"
        for name, size in sorted(parts.items(), key=lambda part: -part[1])
        if size >= NAMED_SHARE * total
    )
    keys = ", ".join(f"{model}.{key}" for key in needs.keys)
    raise DeviceFull(
        f"{model}: {verb} needs at least {in_gib(total)} of memory ({named}), and "
        f"{in_gib(free)} are free here; lower {keys}"
    )


def in_gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"


def dense(sizes: Sequence[int]) -> int:
    """Returns the weights and biases of layers between so many units each."""
    return sum((before + 1) * after for before, after in pairwise(sizes))
