"""Small results of benchmarks, as `make bench` keeps them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Measured
from benchmarks.result_files import Named, named, read
from benchmarks.table import Goal, Point, Row, Without, as_json

MACHINE = {
    "device": "cpu",
    "threads": "2",
    "python": "3.11.7",
    "cpu": "some CPU",
    "jax": "0.10.2",
    "backend": "cpu",
    "rounds": 3,
}


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
PART = Row("  in a scan", "ms/step", measured(0.003), before=measured(0.012), claims=("allo-2",))
SAMPLE = Row(
    "sample, T=100",
    "us/call",
    measured(1e-6),
    measured(9e-6),
    measured(3e-6),
    goal=Goal(2, "seed's way"),
)
MEMORY = Row(
    "rollout", "MB", measured(2e6), measured(3e6), measured(4e6), claims=("colony-memory",)
)
RING = [
    Row(
        f"ring of {at:g}",
        "us/call",
        measured(2e-6),
        measured(at * 1e-7),
        point=Point("sampling", "capacity", at),
    )
    for at in (1e3, 1e4, 1e6)
]
PEERS = [
    Row("sample 256; before: cpprb", "us/call", measured(2e-6), measured(8e-6), against="cpprb"),
    Row("  before: flashbax", "us/call", measured(2e-6), measured(1e-6), against="flashbax"),
]
ALL = {"allo": [STEP, PART, SAMPLE], "actor_critic": [MEMORY], "machine": RING, "peers": PEERS}


def keep(folder: Path, rows: dict[str, list[Row]], **machine: Any) -> Path:
    """The folder with a file per benchmark."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, each in rows.items():
        content = {
            **MACHINE,
            **machine,
            "rows": [as_json(row) for row in each],
            "notes": [f"a note on {name}"],
        }
        (folder / f"{name}.json").write_text(json.dumps(content, indent=1) + "\n")
    return folder


def rows_of(folder: Path, rows: Sequence[Row]) -> list[Named]:
    """Rows of allo, kept and read again."""
    return named(read(keep(folder, {"allo": list(rows)})))
