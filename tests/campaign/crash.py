"""`make crash`: every work dies before its n-th operation on the disk, and finds the disk full from
its n-th write on; a table of how many points there are, were tried, and were survived.
"""

import argparse
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tabulate import tabulate

from tests.campaign import command_works, works
from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.conftest import shapes_unchecked

COMMANDS = "commands"
GROUPS: dict[str, Callable[[Path], Iterator[works.Work]]]
GROUPS = {form: partial(works.stages_of, form) for form in works.TRIED}
GROUPS |= {COMMANDS: command_works.commands}
"""What is prepared together: the stages of a model, and the commands."""
HEAD = ("work", *(f"{fault}: {what}" for fault in FAULTS for what in ("points", "tried", "whole")))


def work_of(name: str, root: Path) -> works.Work:
    """Makes what one work begins with, and no more."""
    form = name.partition(" ")[0]
    group = form if form in GROUPS else COMMANDS
    return next(work for work in GROUPS[group](root) if work.name == name)


def spread(points: int, tries: int) -> list[int]:
    """Returns at most so many points, spread evenly over all."""
    tries = min(points, tries)
    return [1 + number * points // tries for number in range(tries)]


def campaign(group: str, root: Path, stride: int) -> Iterator[list[str | int]]:
    """Yields a row of the table for each work."""
    for work in GROUPS[group](root):
        place = root / work.name.replace(" ", "-")
        reference = undisturbed(work, place)
        row: list[str | int] = [work.name]
        for fault in FAULTS:
            points = reference.points[fault]
            tried = spread(points, -(-points // stride))
            row += [points, len(tried), sum(survives(fault, reference, place, at) for at in tried)]
        yield row


def survives(fault: Fault, reference: Undisturbed, root: Path, point: int) -> bool:
    try:
        attempt(fault, reference, root, point)
    except Exception:
        line = traceback.format_exc(limit=-1).splitlines()[-1]
        print(f"{reference.work.name} {fault} at {point}: {line}", file=sys.stderr)
        return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--stride", type=int, default=7, help="try one point of so many (7)")
    options = parser.parse_args(argv)
    rows: list[list[str | int]] = []
    with tempfile.TemporaryDirectory() as root, shapes_unchecked():
        for group in options.groups or GROUPS:
            for row in campaign(group, Path(root) / group, options.stride):
                rows.append(row)
                print(*row, file=sys.stderr, flush=True)
    sums = [sum(column) for column in zip(*(row[1:] for row in rows), strict=True)]
    print(tabulate([*rows, ["all", *sums]], HEAD, tablefmt="github", intfmt=","))
    return int(sums[1] != sums[2] or sums[4] != sums[5])


if __name__ == "__main__":
    sys.exit(main())
