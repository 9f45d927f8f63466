"""iqn: worlds, acting, gradient steps and whole trainings, against the plain reference and the
seed's proposals.
"""

from pathlib import Path

import jax

from benchmarks.iqn import ring as replay
from benchmarks.iqn.acting import acting_rows, inference_rows, stacking_row
from benchmarks.iqn.loss import loss_row
from benchmarks.iqn.playing import env_rows
from benchmarks.iqn.sides import SAME_TARGET, config_of, narrow_sides, sides_of
from benchmarks.iqn.steps import batch_rows, changed, flop, large_rows, small_rows, train_rows
from benchmarks.iqn.whole import compile_row, equal_work_row, schedule_row
from benchmarks.table import Report, Row
from quatrain.models.iqn.config import IqnConfig

STEPS = {"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0}
"""Of train: the programs of a whole cycle are as short as they can be."""
EQUAL_WORK = {
    "turns": 50_000,
    "turns_per_cycle": 25,
    "updates_per_cycle": 16,
    "record_every": 16,
    "evaluate_every": 0,
    "batch_size": 64,
    "capacity": 16_000,
    "acting": {"quantiles": 32, "taus": "midpoints"},
}
"""Of train, with 32 worlds: 4000 agent-steps and 80 gradient steps a cycle."""
NOTES = [
    "before: the plain reference with the threads of the process; with 1 where a row says "
    "so, and where it acts or has "
    "only its loss, for that is faster there. seed's way: jitted "
    "programs called from Python. Train steps count one agent's, with their sampling; noise "
    "on, if not said otherwise",
    "lines with two blanks in front: the same work with what they name changed, or a part of it",
    "limit of a train step: its FLOP (three forward passes, one backward) at the rate of "
    "torch's (B*Q, units) x "
    "(units, units) in the same rounds; of a draw: np.take of as many rows",
    "all agents at once: agents act one after another and see what those before them did, so "
    "that is another game; "
    "here worlds are the batch",
    "from nothing to a greedy return: `make bench-return`",
]
ORIGINAL_GFLOPS = 228
ORIGINAL_MS = {"world and": 0.2526, "world and acting": 1.09, "train step": 28.9}
"""Of the original program on a machine with that matmul rate: an agent-step without and with
acting, a train step.
"""


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of iqn's table."""
    original = sides_of(config_of(root, train=STEPS | {"loss": SAME_TARGET}))
    rows = env_rows(original.config, rounds)
    rows += [
        *inference_rows(original, rounds),
        *acting_rows(original, rounds),
        stacking_row(original, rounds),
    ]
    steps = train_rows(original, rounds)
    rows += [*steps, *batch_rows(original, rounds), loss_row(original, rounds)]
    for hidden, step_rows in ((64, small_rows), (256, large_rows)):
        rows += step_rows(narrow_sides(root, hidden, original.dataset), rounds)
    rows.append(schedule_row(original, rounds))
    batch = original._replace(config=changed(original.config, batch_size=64))
    work = config_of(
        root, env={"worlds": 32}, collect={"turns": 50}, train=EQUAL_WORK | {"loss": SAME_TARGET}
    )
    rows.append(equal_work_row(batch, work, rounds))
    jitted = steps[0].seed_way
    assert jitted is not None
    rows += [
        compile_row(config_of(root, preset=None), jitted.compile_seconds),
        *replay.rows(rounds),
    ]
    return Report(rows, [*NOTES, copy_note(rows, original.config)], jax.devices()[0].device_kind)


def copy_note(rows: list[Row], config: IqnConfig) -> str:
    """Compares the speed of the plain reference with the original's, with both matmul rates."""
    result = {}
    for row in rows:
        kind = next((kind for kind in reversed(ORIGINAL_MS) if row.name.startswith(kind)), None)
        if kind and kind not in result and row.before is not None:
            result[kind] = 1e3 * row.before.median
    limit = next(
        row.limit for row in rows if row.name.startswith("train step") and row.limit is not None
    )
    rate = flop(config) / limit.median / 1e9
    figures = "; ".join(
        f"{kind} ...: {result[kind]:.3g} ms, {ORIGINAL_MS[kind]:.3g} there" for kind in result
    )
    rates = f"matmul rate {rate:.0f} GFLOP/s; the original ran with {ORIGINAL_GFLOPS}"
    return f"{rates}. Before: {figures}"
