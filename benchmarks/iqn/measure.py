"""iqn: worlds, acting, gradient steps and whole trainings, against reference and proposals"""

from pathlib import Path

import jax

from benchmarks.harness import Report, Row
from benchmarks.iqn.playing import acting_rows, env_rows, inference_rows, stacking_row
from benchmarks.iqn.ring import capacity_rows, numpy_rows
from benchmarks.iqn.sides import FEW, SAME_TARGET, Sides, changed, config_of, sides_of
from benchmarks.iqn.steps import batch_rows, large_rows, loss_row, small_rows, train_rows
from benchmarks.iqn.whole import compile_row, equal_work_row, schedule_row

STEPS = {"updates_per_cycle": 1, "record_every": 1, "evaluate_every": 0, "loss": SAME_TARGET}
"""Of train: the programs of a whole cycle are as short as they can be."""
NARROW = STEPS | {
    "batch_size": 64,
    "updates_per_cycle": 10,
    "record_every": 10,
    "loss": SAME_TARGET | {"quantiles": 8, "target_quantiles": 8},
}
"""Of train: ten updates in a call, so that the call itself does not count."""
EQUAL_WORK = STEPS | {
    "turns": 50_000,
    "turns_per_cycle": 25,
    "updates_per_cycle": 16,
    "record_every": 16,
    "batch_size": 64,
    "capacity": 16_000,
    "acting": FEW,
}
"""Of train, with 32 worlds: 4000 agent-steps and 80 gradient steps a cycle."""
NOTES = [
    "before: the plain reference with the threads of the process, with 1 where it is faster: where "
    "a row says so, in acting, and in the loss alone. seed's way: jitted programs called from "
    "Python. Train steps count one agent's, with their sampling and noise",
    "limit of a train step: its FLOP at the rate of torch's (B*Q, units) x (units, units)",
    "from nothing to a greedy return: `make bench-return`",
]


def measure(root: Path, rounds: int) -> Report:
    """Returns all rows of iqn's table."""
    original = sides_of(config_of(root, train=STEPS))
    smaller_batch = original._replace(config=changed(original.config, batch_size=64))
    steps = train_rows(original, rounds)
    rows = [
        *env_rows(original.config.env.rules, rounds),
        *inference_rows(original, rounds),
        *acting_rows(original, rounds),
        stacking_row(original, rounds),
        *steps,
        *batch_rows(smaller_batch, rounds),
        loss_row(original, rounds),
    ]
    rows += narrow_rows(root, rounds, original)
    work = config_of(root, env={"worlds": 32}, collect={"turns": 50}, train=EQUAL_WORK)
    schedule = schedule_row(original, rounds)
    rows += [
        schedule,
        equal_work_row(smaller_batch, work, rounds),
        compile_row(schedule, steps[0]),
        *numpy_rows(rounds),
        *capacity_rows(rounds),
    ]
    return Report(rows, NOTES, jax.devices()[0].device_kind)


def narrow_rows(root: Path, rounds: int, like: Sides | None = None) -> list[Row]:
    """Measures train steps of small and large networks, with the replay of others if given."""
    rows = []
    for hidden, step_rows in ((64, small_rows), (256, large_rows)):
        network = {"hidden": hidden, "noisy": "none"}
        rows += step_rows(sides_of(config_of(root, network=network, train=NARROW), like), rounds)
    return rows
