"""/proc, the control groups of this process -> the bytes that it may still allocate."""

from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
KIB = 1024
# Files of the limit and the usage of a group, and what it counts but gives back: file caches.
V2 = ("memory.max", "memory.current", "file")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_cache")


def free_memory(proc: Path = PROC, cgroups: Path = CGROUPS) -> int | None:
    """Returns the bytes that the machine has left, or less if a control group allows less; None
    where nobody says.

    Swap counts, for what it holds runs; file caches count, for they are given back.
    """
    free = [size for size in (_of_machine(proc), *_of_groups(proc, cgroups)) if size is not None]
    return max(0, min(free)) if free else None


def _of_machine(proc: Path) -> int | None:
    sizes = _table(proc / "meminfo", ":")
    available = sizes.get("MemAvailable", sizes.get("MemFree"))
    return None if available is None else KIB * (available + sizes.get("SwapFree", 0))


def _of_groups(proc: Path, cgroups: Path) -> Iterator[int]:
    """Yields what each group that this process is in leaves, the groups around it included."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            roots, files = (cgroups, cgroups / "unified"), V2
        elif "memory" in controllers.split(","):
            roots, files = (cgroups / "memory", cgroups), V1
        else:
            continue
        for root in roots:
            group = root / path.strip("/")
            # Inside a container the path may be one of the host, and the root its own group.
            for folder in (group, *group.parents):
                if folder.is_relative_to(root):
                    yield from _of_group(folder, files)


def _of_group(folder: Path, files: tuple[str, str, str]) -> Iterator[int]:
    limit_file, usage_file, cache = files
    limit, usage = (_text(folder / name).strip() for name in (limit_file, usage_file))
    if limit.isdigit():  # not `max`
        cached = _table(folder / "memory.stat", " ").get(cache, 0)
        yield int(limit) - max(0, (int(usage) if usage.isdigit() else 0) - cached)


def _table(path: Path, separator: str) -> dict[str, int]:
    """Returns the numbers of a file with a name and a number in each line."""
    pairs = (line.partition(separator) for line in _text(path).splitlines())
    numbers = ((name.strip(), rest.split()[:1]) for name, _, rest in pairs)
    return {name: int(first[0]) for name, first in numbers if first and first[0].isdigit()}


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError):
        return ""
