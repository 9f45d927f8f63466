"""the machine and the control groups of this process -> the bytes that it may still allocate."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil

GROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def free_memory() -> int:
    """Returns the bytes that the machine has left, or less if a control group allows less.

    Swap counts, for what it holds runs; file caches count, for they are given back.
    """
    of_machine = psutil.virtual_memory().available + psutil.swap_memory().free
    return max(0, min([of_machine, *_left_by_groups()]))


def _left_by_groups() -> Iterator[int]:
    """Yields what each limited group (cgroup v2) that this process is in leaves."""
    try:
        own = OWN_GROUP.read_text().partition("0::/")[2].strip()
    except OSError:
        return
    # Inside a container the path may be one of the host, and the root its own group.
    for folder in (GROUPS / own, *(GROUPS / own).parents):
        with suppress(OSError, ValueError):  # no group of ours, or one without a limit: `max`
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            pairs = map(str.split, (folder / "memory.stat").read_text().splitlines())
            yield limit - used + int(dict(pairs).get("file", 0))
