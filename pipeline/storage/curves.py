"""a history -> reports/MODEL/curves: a CSV file per metric without blank cells, for DVC's plots."""

from collections.abc import Collection
from pathlib import Path

from quatrain.progress import History
from quatrain.storage import history
from quatrain.storage.atomic_write import write_exactly


def write_curves(folder: Path, curves: History) -> None:
    """Makes the folder hold exactly one file `NAME.csv` per metric, with the columns step and NAME.

    A metric that is evaluated seldom so has no blank cells, which DVC would draw as zeros. Members
    of a metric, such as `NAME/3` and `NAME/seed/1`, stay in history.csv.
    """
    texts = {}
    for name in scalars(curves):
        steps, values = (column.tolist() for column in curves[name])
        texts[f"{file_name(name)}.csv"] = history.to_csv(
            {name: list(zip(steps, values, strict=True))}
        )
    write_exactly(folder, {name: text.encode() for name, text in texts.items()})


def scalars(names: Collection[str]) -> list[str]:
    """Returns the names that are not `METRIC/...` of another metric, and no numbered members."""
    return [name for name in names if not is_member(name, names)]


def is_member(name: str, names: Collection[str]) -> bool:
    parts = name.split("/")
    stems = {"/".join(parts[:length]) for length in range(1, len(parts))}
    return not stems.isdisjoint(names) or parts[-1].isdecimal()


def file_name(name: str) -> str:
    return name.replace("/", "_")
