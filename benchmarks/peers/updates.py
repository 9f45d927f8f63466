"""rounds -> rows about gradient steps of iqn against its plain reference in PyTorch"""

from pathlib import Path

from benchmarks.iqn.sides import SAME_TARGET, config_of, sides_of
from benchmarks.iqn.steps import large_rows, small_rows
from pipeline.reporting.speed import REFERENCE, Row

LOSS = SAME_TARGET | {"quantiles": 8, "target_quantiles": 8}
TRAIN = {
    "updates_per_cycle": 20,
    "record_every": 20,
    "evaluate_every": 0,
    "batch_size": 64,
    "loss": LOSS,
}
"""More than one update in a call, so that the call itself does not count."""


def rows(root: Path, rounds: int) -> list[Row]:
    """Measures small and large networks; claims of proposals are in iqn's own benchmark."""
    result = []
    for hidden, step_rows in ((64, small_rows), (256, large_rows)):
        sides = sides_of(config_of(root, network={"hidden": hidden, "noisy": "none"}, train=TRAIN))
        result += step_rows(sides, rounds)
    against_torch = [row for row in result if row.before and row.against == REFERENCE]
    return [row._replace(claims=(), against="torch") for row in against_torch]
