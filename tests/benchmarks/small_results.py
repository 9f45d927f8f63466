"""Small results of benchmarks, as `make bench` stores them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.claims import Named, named, read
from benchmarks.harness import Goal, Measured, Report, Row, Without, results_of
from benchmarks.speed import write_results

SETTINGS = {"device": "cpu", "threads": "2", "cpu": "some CPU", "jax": "0.10.2"}


def measured(*values: float) -> Measured:
    """The same in each of three rounds, unless three are given."""
    return Measured(np.array(values if len(values) > 1 else values * 3), 0.25)


STEP = Row(
    "step",
    "ms/step",
    measured(0.002, 0.004, 0.001),
    before=measured(0.012),
    seed_way=measured(0.006),
    limit=measured(0.001),
    without=Without("the table of states", measured(0.008)),
    goal=Goal(7, "before"),
    claims=("allo-overall",),
    tried="a fused kernel gave 1.1x",
)
PART = Row("  in a scan", "ms/step", measured(0.003), measured(0.012), claims=("allo-2",))
VARIANT = Goal(2, "seed's way")
SAMPLE = Row("sample", "us/call", measured(1e-6), measured(9e-6), measured(3e-6), goal=VARIANT)
MEMORY = Row("rollout", "MB", *map(measured, (2e6, 3e6, 4e6)), claims=("colony-memory",))
START = Row("start", "s", measured(2.0), measured(6.0))
DRAW = Row("draw", "us/call", measured(2e-6), measured(8e-6), against="cpprb")
PEERS = [
    DRAW,
    DRAW._replace(before=measured(1e-6), against="torchrl, plain"),
]
ALL = {"allo": [STEP, PART, SAMPLE], "actor_critic": [MEMORY], "machine": [START], "peers": PEERS}


def keep(folder: Path, rows: dict[str, list[Row]], backend: str = "cpu", **machine: str) -> Path:
    """Returns the folder with a file per benchmark."""
    for name, each in rows.items():
        report = Report(each, [f"a note on {name}"], backend)
        write_results(folder / f"{name}.json", results_of(report, SETTINGS | machine, 3))
    return folder


def rows_of(folder: Path, rows: Sequence[Row]) -> list[Named]:
    """Returns rows of allo, stored and read again."""
    return named(read(keep(folder, {"allo": list(rows)})))
