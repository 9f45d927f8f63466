"""Compares what a pretended death leaves (`faulty_disk`) with what SIGKILL leaves, in a process
that is safe to fork.
"""

import os
import re
import signal
import sys
from functools import partial
from pathlib import Path

from tests.campaign.command_works import commands
from tests.campaign.faulty_disk import FaultyDisk, dies, signals
from tests.campaign.lives import copied, live, undisturbed
from tests.campaign.promises import content_of
from tests.campaign.works import Work

WORKS = ("promote all", "report", "outcome", "schema", "rwlock")
RANDOM = re.compile(r"\.[0-9a-f]{8}(?=\.partial)")


def main(root: Path) -> None:
    deaths, differing = 0, []
    for work in commands(root / "works"):
        if work.name not in WORKS:
            continue
        for point in range(1, undisturbed(work, root / "undisturbed").points["killed"] + 1):
            pretended, real = (copied(work, root / kind) for kind in ("pretended", "real"))
            with FaultyDisk(pretended, partial(dies, point)):
                live(work, pretended)
            really_die(work, real, point)
            deaths += 1
            if left_in(pretended) != left_in(real):
                differing.append((work.name, point))
    print(f"{deaths} deaths, differing: {differing}")


def really_die(work: Work, folder: Path, point: int) -> None:
    child = os.fork()
    if child == 0:
        with FaultyDisk(folder, partial(signals, point, (signal.SIGKILL,))):
            live(work, folder)
        os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def left_in(folder: Path) -> dict[str, str]:
    """Returns what is there, but for the number of a process, times and random names."""
    content = content_of(folder)
    return {
        RANDOM.sub("", name): "" if "journal.jsonl" in name else value
        for name, value in content.items()
        if not name.endswith("/lock")
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
