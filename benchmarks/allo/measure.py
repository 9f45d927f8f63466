"""allo: a step, a sample and the data preparation, against the reference and the proposals."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.allo.parts import part_rows
from benchmarks.allo.pictures import FEW, PLOTS_OF_A_RUN, plots_row
from benchmarks.allo.sampling import batch_rows, capacity_rows, memory_row, sampling_rows, whole_row
from benchmarks.allo.steps import step_row, step_rows
from benchmarks.allo.worlds import World, rows_of, world_of
from benchmarks.harness import Contestant, Measured, race
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import RowBuffer
from benchmarks.table import Goal, NotTheSame, Report, Row
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.models.allo.collect import collect
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes

PRESET = "original"
SEED = 0
COPIED_WALKS = 3  # of 1000: the reference takes half a minute or more for all
FEW_WALKS = 100  # on the larger maps
WHOLE_RUN_STEPS = 20_000
SHORT = 100  # transitions in a row of the original's first program
NOTES = [
    f"data preparation: before is {COPIED_WALKS} of 1000 walks, times 1000/{COPIED_WALKS} "
    "(extrapolated), without the walking; ours is walking and copying",
    f"whole run: preparation + {WHOLE_RUN_STEPS:,} times the step of room4, sampling of "
    f"{WHOLE_RUN_STEPS:,} steps: {2 * WHOLE_RUN_STEPS:,} samples (computed from the rows, not run)",
    f"plots: ours are drawn once, after training, which counts for {PLOTS_OF_A_RUN} plots of the "
    f"original; {FEW} rounds",
    "indented lines: parts of the work, by themselves, or points of a curve",
]


def measure(root: Path, rounds: int) -> Report:
    """Measures all rows of allo's table."""
    world = world_of(config_of(root), SEED)
    steps, notes = step_rows(world, rounds)
    rows, all_notes = [*steps], [notes]
    for layout in ("room16", "room64"):
        larger = config_of(root, env={"layout": layout}, collect={"num_envs": FEW_WALKS})
        row, note = step_row(world_of(larger, SEED, world.programs), rounds)
        rows, all_notes = [*rows, row], [*all_notes, note]
    rows += [*part_rows(world, rounds), plots_row(world), *replay_rows(root, world, rounds)]
    preparation = preparation_row(world, rounds)
    rows += [preparation, whole_run_row(preparation, steps[0])]
    return Report(rows, all_notes + NOTES, jax.devices()[0].device_kind)


def config_of(root: Path, **sections: Any) -> AlloConfig:
    """Returns the preset of the original program with changed sections of allo."""
    raw = overlaid(read_raw(root, PRESET), {"allo": sections})
    return validate(raw, lambda name: read_input(root, str(name))).allo


def replay_rows(root: Path, world: World, rounds: int) -> list[Row]:
    """Measures sampling from rows of 100 and of 1000, and the memory of the ends."""
    short = config_of(root, env={"max_episode_steps": SHORT}, collect={"steps_per_env": SHORT})
    states, discount = len(world.data.inputs), world.config.train.discounts[0]
    rows: list[Row] = []
    for episodes in (collect(short, SEED).train, world.dataset.train):
        law = pair_matrix(episodes, states, (discount,))
        sampled = sampling_rows(episodes, law, discount, rounds)
        rows += [*sampled, memory_row(episodes, rounds)]
    curves = [
        *batch_rows(episodes, law, discount, rounds),
        *capacity_rows(episodes, law, discount, rounds),
    ]
    return [*rows, whole_row(sampled[-1]), *curves]


# Preparation of the data.


def preparation_row(world: World, rounds: int) -> Row:
    """Measures a million transitions: the reference copies scalars, ours walks and flattens."""
    config, walks = world.config, world.config.collect.num_envs
    columns = columns_of(world.dataset.train, COPIED_WALKS)
    jax.clear_caches()  # so that the first call compiles
    times = race(
        {
            "before": Contestant(lambda: filled(*columns), COPIED_WALKS / walks),
            "ours": Contestant(lambda: collect(config, SEED)),
        },
        rounds,
    )
    return Row(
        "prepare 1M transitions", "s", times["ours"], times["before"], goal=Goal(5, "before")
    )


def columns_of(episodes: Episodes, walks: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Returns (state, next state, ended) of the first walks, as device arrays.

    Raises:
        NotTheSame: copying them does not give the same rows.
    """
    whole = rows_of(episodes)
    states, ended = whole.obs[:walks], whole.terminals[:walks]
    columns = jnp.asarray(states[:, :-1]), jnp.asarray(states[:, 1:]), jnp.asarray(ended[:, 1:])
    copied = filled(*columns)
    if not (np.array_equal(copied.obs, states) and np.array_equal(copied.terminals, ended)):
        raise NotTheSame(
            "data preparation: the reference's rows differ from the project's trajectories"
        )
    return columns


def filled(states: jax.Array, next_states: jax.Array, ended: jax.Array) -> RowBuffer:
    buffer = RowBuffer(len(states), states.shape[1] + 1)
    reference.fill(buffer, states, next_states, ended)
    return buffer


def whole_run_row(preparation: Row, step: Row) -> Row:
    """Computes collecting and all steps of the original's default run from the two rows.

    The proposal does not change the preparation.
    """

    def whole(prepared: Measured | None, stepped: Measured | None) -> Measured:
        assert prepared is not None
        assert stepped is not None
        seconds = prepared.values + WHOLE_RUN_STEPS * stepped.values
        return Measured(seconds, prepared.compile_seconds + stepped.compile_seconds)

    return Row(
        f"collect + {WHOLE_RUN_STEPS:,} steps, room4",
        "s",
        whole(preparation.ours, step.ours),
        whole(preparation.before, step.before),
        whole(preparation.before, step.seed_way),
        goal=Goal(5, "before"),
        claims=("allo-overall",),
    )
