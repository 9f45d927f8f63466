"""iqn: worlds, acting, gradient steps and whole trainings, against the plain reference and the seed's proposals."""

from pathlib import Path

import jax

from benchmarks.iqn import ring as replay
from benchmarks.iqn.playing import acting_rows, env_rows, stacking_row
from benchmarks.iqn.sides import SAME_TARGET, config_of, sides_of
from benchmarks.iqn.steps import large_rows, loss_row, original_rows, small_rows
from benchmarks.iqn.whole import RUNS_TO_RETURN, compile_row, equal_work_row, return_rows, schedule_rows
from benchmarks.table import Report

STEPS = {"updates_per_cycle": 4, "record_every": 20, "evaluate_every": 0}
"""Of train: more than one update in a call, so that the call itself does not count."""
NARROW_LOSS = SAME_TARGET | {"quantiles": 8, "target_quantiles": 8}
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
    "before: the plain reference with the threads of the process; where a row says so, with 1. seed's way: jitted "
    "programs called from Python. Train steps count one agent's, with their sampling; noise on, if not said otherwise",
    "lines with two blanks in front: the same work with what they name changed, or a part of it",
    "before = FLOP as matmuls: the time that the matmuls of a step (three forward passes, one backward) take at the "
    "rate of torch's (B*Q, units) x (units, units) in the same rounds: its ratio is the share of that rate",
    "seed 004 vmap of acting and observing over agents: agents act one after another, and see what those before "
    "them did, so no row; worlds are the batch",
    f"greedy return: {RUNS_TO_RETURN} run(s) of each side; ours compiles anew in each",
]


def measure(root: Path, rounds: int, runs: int = RUNS_TO_RETURN) -> Report:
    """All rows of iqn's table; `runs`: trainings of each side from nothing to a return, 0 leaves them out."""
    original = sides_of(config_of(root, train=STEPS | {"loss": SAME_TARGET}))
    rows = env_rows(original.config, rounds)
    rows += [*acting_rows(original, rounds), stacking_row(original, rounds)]
    rows += [*original_rows(original, rounds, goals=(1.4, 2.4, 0.65)), loss_row(original, rounds)]
    batch = sides_of(config_of(root, train=STEPS | {"loss": SAME_TARGET, "batch_size": 64}))
    rows += original_rows(batch, rounds, goals=(1.5, 2.2, 0.5))
    for hidden, step_rows in ((64, small_rows), (256, large_rows)):
        network = {"hidden": hidden, "noisy": "none"}
        train = STEPS | {"loss": NARROW_LOSS, "batch_size": 64, "updates_per_cycle": 20}
        rows += step_rows(sides_of(config_of(root, network=network, train=train)), rounds)
    rows += schedule_rows(sides_of(config_of(root, train={"loss": SAME_TARGET})), rounds)
    work = EQUAL_WORK | {"loss": SAME_TARGET}
    rows.append(equal_work_row(batch, config_of(root, env={"worlds": 32}, collect={"turns": 50}, train=work), rounds))
    rows += [compile_row(config_of(root, preset=None)), *replay.rows(rounds)]
    notes = NOTES
    if runs:
        found, note = return_rows(root, runs)
        rows, notes = rows + found, [*NOTES, note]
    return Report(rows, notes, jax.devices()[0].device_kind)
