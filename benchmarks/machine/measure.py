"""machine -> rows: limits that other rows are compared with, and start-up times"""

from pathlib import Path

import jax

from benchmarks.machine.rates import rate_rows, small_rows, waiting_row
from benchmarks.machine.startup import STARTS, check_row, import_rows, start_row
from benchmarks.table import Report

FEW = 1
"""Rounds of what takes seconds a turn: processes that import torch or mlflow."""


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of the machine's table."""
    rates, notes = rate_rows(rounds)
    rows = [*rates, *small_rows(rounds), waiting_row(FEW), *import_rows(FEW), check_row(root, FEW)]
    rows += [start_row(root, model, starts) for model, starts in STARTS.items()]
    return Report(rows, [*notes, *explained()], jax.devices()[0].device_kind)


def explained() -> list[str]:
    """Returns notes on what the rows mean."""
    times = ", ".join(f"{model} {starts}" for model, starts in STARTS.items())
    return [
        (
            f"imports, the wrong params.yaml and the waiting threads: {FEW} round; imports: less an"
            " empty process"
        ),
        (
            "start to first yield: before is with an empty cache; so many starts with each:"
            f" {times}; iqn: one update"
        ),
    ]
