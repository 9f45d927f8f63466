"""allo: a step, a sample and the data preparation, against the reference and the proposals"""

from pathlib import Path

import jax
import jax.numpy as jnp

from benchmarks.allo.parts import PLOTS_OF_A_RUN, gather_row, metrics_row, plots_row, term_rows
from benchmarks.allo.sampling import sampling_rows
from benchmarks.allo.steps import SEED, World, config_of, encoder_row, rows_of, step_rows, world_of
from benchmarks.harness import Contestant, Goal, Measured, Report, Row, race
from benchmarks.jax_work import refuse_difference
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import RowBuffer
from quatrain.models.allo.collect import collect

COPIED_WALKS = 3  # of 1000: the reference takes half a minute or more for all
FEW_WALKS = 100  # on the larger maps
WHOLE_RUN_STEPS = 20_000  # the original samples twice a step
SHORT = 100  # transitions in a row of the original's first program
NOTES = [
    f"data preparation: before is {COPIED_WALKS} of 1000 walks, extrapolated, without the walking",
    f"whole run, sampling of {WHOLE_RUN_STEPS:,} steps: computed from the rows above, not run",
    f"plots: ours are drawn once, which counts for {PLOTS_OF_A_RUN} plots; one round",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of allo's table."""
    world = world_of(config_of(root))
    rows = step_rows(world, rounds, proposals=True)
    step = rows[0]
    rows += [encoder_row(world, rounds), gather_row(world, rounds), *term_rows(world, rounds)]
    rows += [metrics_row(rounds), plots_row(world)]
    for layout in ("room16", "room64"):
        larger = config_of(root, env={"layout": layout}, collect={"num_envs": FEW_WALKS})
        rows += step_rows(world_of(larger), rounds)

    states, discount = len(world.data.inputs), world.config.train.discounts[0]
    short = config_of(root, env={"max_episode_steps": SHORT}, collect={"steps_per_env": SHORT})
    rows += sampling_rows(collect(short, SEED).train, states, discount, rounds)
    sampled = sampling_rows(world.dataset.train, states, discount, rounds)
    rows += [*sampled, sampling_of_a_run(sampled[2])]

    preparation = preparation_row(world, rounds)
    rows += [preparation, whole_run_row(preparation, step)]
    return Report(rows, NOTES, jax.devices()[0].device_kind)


def preparation_row(world: World, rounds: int) -> Row:
    """Measures a million transitions: the reference copies scalars, ours walks and flattens."""
    config, whole = world.config, rows_of(world.dataset.train)
    states, ended = whole.obs[:COPIED_WALKS], whole.terminals[:COPIED_WALKS]
    columns = jnp.asarray(states[:, :-1]), jnp.asarray(states[:, 1:]), jnp.asarray(ended[:, 1:])

    def copy() -> RowBuffer:
        buffer = RowBuffer(*states.shape)
        reference.fill(buffer, *columns)
        return buffer

    copied = copy()
    results = {"ours": (states, ended), "before": (copied.obs, copied.terminals)}
    refuse_difference("data preparation", results)
    contestants = {
        "before": Contestant(copy, COPIED_WALKS / config.collect.num_envs),
        "ours": Contestant(lambda: collect(config, SEED)),
    }
    return Row("prepare 1M transitions", "s", **race(contestants, rounds), goal=Goal(5, "before"))


def sampling_of_a_run(sampled: Row) -> Row:
    """Computes the sampling time of the original's default run, from the times of one sample."""
    samples = 2 * WHOLE_RUN_STEPS
    sides = (sampled.ours, sampled.before, sampled.seed_way)
    times = [Measured(samples * side.values) for side in sides if side]
    return Row(f"sampling of {WHOLE_RUN_STEPS:,} steps", "s", *times, claims=("replay-overall",))


def whole_run_row(preparation: Row, step: Row) -> Row:
    """Computes collecting and all steps of the original's default run from the two rows.

    The proposal does not change the preparation.
    """
    before = preparation.before
    pairs = ((preparation.ours, step.ours), (before, step.before), (before, step.seed_way))
    times = [Measured(once.values + WHOLE_RUN_STEPS * each.values) for once, each in pairs]
    name, goal = f"collect + {WHOLE_RUN_STEPS:,} steps, room4", Goal(5, "before")
    return Row(name, "s", *times, goal=goal, claims=("allo-overall",))
