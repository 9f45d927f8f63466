"""curves of metrics <-> history.csv: a column per metric, a row per step."""

import csv
import io
from collections.abc import Mapping, Sequence

from quatrain.errors import FolderError
from quatrain.progress import History, Row, history

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
    return history(table(text))


def table(text: str) -> list[Row]:
    """Returns (name, step, value) of each cell that is not empty, row by row.

    Raises:
        FolderError: it is no table of numbers.
    """
    try:
        header, *lines = csv.reader(io.StringIO(text))
        return [
            (name, int(step), float(cell))
            for step, *cells in lines
            for name, cell in zip(header[1:], cells, strict=True)
            if cell
        ]
    except (ValueError, csv.Error) as error:
        raise FolderError(f"history.csv: is no table of steps and numbers ({error})") from None
