"""the largest arrays of a config, the machine's free bytes -> nothing, or one line that names the
keys to lower; what says that an allocation failed -> the same line.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from quatrain.errors import DeviceFull

FLOAT, DOUBLE = 4, 8
# A weight of a learner has two moments of Adam beside it.
ADAM = 3 * FLOAT
# Of what learns: before an update, after it, and as the bytes of a file; of torch models what
# changes in place, the last two yields, and arrays and bytes of a file.
COPIES, TORCH_COPIES = 3, 5
GIB = 2**30
# What a stage of the smallest config takes.
PROCESS = 3 * GIB // 8
# Shares of the whole that are worth a word.
NAMED_SHARE = 0.01
# What the frameworks' errors, which are RuntimeErrors, say of an allocation that failed.
NO_MEMORY = (
    "RESOURCE_EXHAUSTED",
    "out of memory",
    "Out of memory",
    "can't allocate memory",
    "not enough memory",
    "std::bad_alloc",
)


class Needs(NamedTuple):
    """Holds about how many bytes each verb needs at once, by what they are for, and the keys of the
    model's section that make them smaller.

    They are sums of the largest arrays; tests/pipeline/runtime/test_memory.py has what trainings
    took.
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
    raise DeviceFull(
        f"{model}: {verb} needs about {in_gib(total)} of memory ({named}), and "
        f"{in_gib(free)} are free here",
        remedy=keys_to_lower(model, needs),
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Returns whether an allocation by Python, NumPy or a framework failed."""
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    return said or isinstance(error, MemoryError)


@contextmanager
def lack_explained(model: str, needs: Callable[[], Needs]) -> Iterator[None]:
    """Tells in one line which keys to lower when the memory of a device is used up.

    Raises:
        DeviceFull: an allocation failed.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, DeviceFull) or not is_out_of_memory(error):
            raise
        said = next(iter(str(error).splitlines()), "an allocation failed")
        reason = f"{model}: the device has no memory left: {said}"
        raise DeviceFull(reason, remedy=keys_to_lower(model, needs())) from None


def keys_to_lower(model: str, needs: Needs) -> str:
    return f"lower {', '.join(f'{model}.{key}' for key in needs.keys)}"


def in_gib(size: int) -> str:
    return f"{size / GIB:,.1f} GiB"


def dense(sizes: Sequence[int]) -> int:
    """Returns the weights and biases of layers between so many units each."""
    return sum((before + 1) * after for before, after in pairwise(sizes))
