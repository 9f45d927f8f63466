"""curves of metrics <-> history.csv: a column per metric, a row per step."""

import csv
import io
from collections.abc import Mapping, Sequence

from quatrain.progress import History, history

STEP = "step"


def to_csv(curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Returns CSV of (step, value) points by metric; a cell is empty where a metric was not
    evaluated at that step.
    """
    columns = {name: dict(points) for name, points in curves.items()}
    steps = sorted({step for column in columns.values() for step in column})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([STEP, *columns])
    for step in steps:
        writer.writerow(
            [step, *[repr(column[step]) if step in column else "" for column in columns.values()]]
        )
    return text.getvalue()


def from_csv(text: str) -> History:
    header, *lines = csv.reader(io.StringIO(text))
    points = []
    for step, *cells in lines:
        points += [
            (name, int(step), float(cell))
            for name, cell in zip(header[1:], cells, strict=True)
            if cell
        ]
    return history(points)
