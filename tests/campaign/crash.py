"""`make crash`: every work dies before its n-th operation on the disk, and finds the disk full from
its n-th write on; a table of how many points there are, were tried, and were survived.
"""

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pipeline.reporting.tables import between_marks, markdown_table
from quatrain.storage.atomic_write import write_durably
from tests.campaign import command_works, works
from tests.campaign.faulty_disk import FAULTS, Fault
from tests.campaign.lives import Undisturbed, attempt, undisturbed
from tests.conftest import ROOT, shapes_unchecked

COMMANDS = "commands"
GROUPS: dict[str, Callable[[Path], Iterator[works.Work]]]
GROUPS = {learner: partial(works.stages_of, learner) for learner in works.LEARNERS}
GROUPS |= {COMMANDS: command_works.commands}
"""What is prepared together: the stages of a learner, and the commands."""
# Of the points of a work, every so many-th is tried.
STRIDE = 7
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / ".bench" / "crash"
BEGIN = "<!-- Made by `make crash ARGS=--page`. -->"
END = "<!-- End of what `make crash ARGS=--page` makes. -->"


class Row(NamedTuple):
    """Holds how many points a fault has in a work, how many were tried, and survived."""

    group: str
    work: str
    fault: Fault
    points: int
    tried: int
    survived: int


def spread(points: int, stride: int, least: int = 1) -> list[int]:
    """Returns the points to try, spread evenly: one of so many, at least so many if there are."""
    tries = min(points, max(-(-points // stride), least))
    return [1 + number * points // tries for number in range(tries)]


def campaign(group: str, root: Path, stride: int) -> Iterator[Row]:
    for work in GROUPS[group](root):
        place = root / work.name.replace(" ", "-")
        reference = undisturbed(work, place)
        for fault in FAULTS:
            points = reference.points[fault]
            tried = spread(points, stride)
            survived = sum(survives(fault, reference, place, point) for point in tried)
            yield Row(group, work.name, fault, points, len(tried), survived)


def survives(fault: Fault, reference: Undisturbed, root: Path, point: int) -> bool:
    try:
        attempt(fault, reference, root, point)
    except Exception:
        line = traceback.format_exc(limit=-1).splitlines()[-1]
        print(f"{reference.work.name} {fault} at {point}: {line}", file=sys.stderr)
        return False
    return True


def table(rows: Sequence[Row]) -> str:
    """Returns a row per work, or for the commands together; both faults beside each other."""
    head = ("work", *(f"{fault}: {name}" for fault in FAULTS.values() for name in Row._fields[3:]))
    lines = []
    for name, each in groupby(rows, lambda row: row.work):
        of_work = {row.fault: row for row in each}
        lines.append([name, *(f"{n:,}" for fault in FAULTS for n in of_work[fault][3:])])
    sums = [sum(row[n] for row in rows if row.fault == f) for f in FAULTS for n in (3, 4, 5)]
    lines.append(["all", *(f"{n:,}" for n in sums)])
    return markdown_table(head, lines)


def stored() -> list[Row]:
    """Returns the rows of the last campaign of each group."""
    paths = [RESULTS / f"{group}.json" for group in GROUPS]
    return [Row(**row) for path in paths if path.exists() for row in json.loads(path.read_text())]


def run(group: str, stride: int) -> list[Row]:
    """Tries a group, and stores its rows as they come."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as root, shapes_unchecked():
        for row in campaign(group, Path(root) / group, stride):
            rows.append(row)
            print(*row[1:], flush=True)
            text = json.dumps([row._asdict() for row in rows], indent=1)
            write_durably(RESULTS / f"{group}.json", text.encode())
    return rows


def write_page() -> None:
    """Writes the table of the stored rows into the page."""
    page = between_marks(PAGE.read_text(), table(stored()), BEGIN, END, PAGE.name)
    write_durably(PAGE, page.encode())


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make crash", description=__doc__)
    parser.add_argument("groups", nargs="*", metavar="GROUP", help=f"of {', '.join(GROUPS)}")
    parser.add_argument("--stride", type=int, default=STRIDE, help=f"one of so many ({STRIDE})")
    parser.add_argument("--every", action="store_const", dest="stride", const=1, help="each point")
    parser.add_argument(
        "--page", action="store_true", help=f"only write the table of what ran into {PAGE.name}"
    )
    options = parser.parse_args(argv)
    if options.page:
        write_page()
        return 0
    rows = [row for group in options.groups or GROUPS for row in run(group, options.stride)]
    print(table(rows))
    return int(any(row.survived < row.tried for row in rows))


if __name__ == "__main__":
    sys.exit(main())
