"""allo: a step, a sample and the preparation of the data, against the plain reference and the seed's proposals."""

import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import chisquare

from benchmarks.allo.steps import rows_of, step_row, step_rows, world_of
from benchmarks.harness import Contestant, Times, race
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import RowBuffer, sample_searching, sample_with_terminal_table
from benchmarks.table import Goal, NotTheSame, Report, Row
from pipeline.params import overlaid, read_input, read_raw, validate
from quatrain.envs.grid.layouts import count_states
from quatrain.models.allo.collect import collect
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import Episodes, sample, sample_numpy

PRESET = "original"
SEED = 0
BATCH = 256
SCANNED = 1000  # samples in a call of the compiled sampler
COPIED_WALKS = 5  # of 1000: the reference takes half a minute or more for all
WHOLE_RUN_STEPS = 20_000
CHECK_SECONDS = 2.0
NOTES = [
    f"data preparation: before is {COPIED_WALKS} of 1000 walks, times 1000/{COPIED_WALKS} (extrapolated), and without "
    "the walking; ours is walking and copying",
    f"whole run: preparation + {WHOLE_RUN_STEPS:,} times the step of room4 (computed from these rows, not run)",
    "lines with two blanks in front: parts of the work, by themselves",
    "seed 000-5, 000-7, 000-8 (`@` for einsum, one eye, jit inside jit): the same program once compiled, so no row",
]


def measure(root: Path, rounds: int) -> Report:
    """All rows of allo's table."""
    rows, note = step_rows(world_of(config_of(root), SEED), rounds)
    step, notes = rows[0], [note]
    for layout in ("room16", "room64"):
        row, note = step_row(world_of(config_of(root, env={"layout": layout}), SEED), rounds)
        rows, notes = [*rows, row], [*notes, note]
    for length in (100, 1000):
        rows += sampling_rows(
            config_of(root, env={"max_episode_steps": length}, collect={"steps_per_env": length}), rounds
        )
    preparation = preparation_row(config_of(root), rounds)
    rows += [preparation, whole_run_row(preparation, step), check_row(root, rounds)]
    return Report(rows, notes + NOTES, jax.devices()[0].device_kind)


def config_of(root: Path, **sections: Any) -> AlloConfig:
    """The preset of the original program with sections of allo changed."""
    raw = overlaid(read_raw(root, PRESET), {"allo": sections})
    return validate(raw, lambda name: read_input(root, str(name))).allo


# Sampling.


def sampling_rows(config: AlloConfig, rounds: int) -> list[Row]:
    """256 pairs out of rows of one length: on the host, and inside a compiled scan."""
    episodes = collect(config, SEED).train
    contestants = samplers(episodes, config.train.discounts[0])
    law = pair_matrix(episodes, count_states(config.env.map), config.train.discounts)
    for name, contestant in contestants.items():
        refuse_another_law(name, contestant.run(), law)
    jax.clear_caches()  # so that the first call compiles
    times = race(contestants, rounds)
    where = f"rows of {config.env.max_episode_steps}"
    row = partial(Row, seed_item="001", unit="us/call", before=times["before"], seed_way=times["seed"])
    claimed = "0.5-1 ms, ~5x"
    return [
        row(f"sample(256), {where}", claimed=claimed, ours=times["numpy"], goal=Goal(10, "seed's way")),
        row("  in a scan, one by one", claimed="-", ours=times["scan"], goal=None),
        row("  a chunk at once (as in training)", claimed="-", ours=times["bulk"], goal=Goal(15, "seed's way")),
    ]


def samplers(episodes: Episodes, discount: float) -> dict[str, Contestant]:
    """By name; each run gives the pairs (state, later state) of all its calls."""
    rng, buffer = np.random.default_rng(SEED), rows_of(episodes)
    on_device, keys = jax.tree.map(jnp.asarray, episodes), itertools.count()

    def repeated(calls: int, draw: Callable[[], tuple[np.ndarray, np.ndarray]]) -> Contestant:
        return Contestant(lambda: zip(*[draw() for _ in range(calls)], strict=True), calls)

    def compiled(draw_all: Callable[[jax.Array, Episodes], Any]) -> Contestant:
        program = jax.jit(lambda key, data: draw_all(jax.random.split(key, SCANNED), data))
        return Contestant(lambda: jax.block_until_ready(program(jax.random.key(next(keys)), on_device)), SCANNED)

    def one(key: jax.Array, data: Episodes) -> tuple[jax.Array, jax.Array]:
        return sample(key, data, BATCH, (discount,), constraint_batches=0)[:2]

    return {
        "before": repeated(40, lambda: sample_searching(rng, buffer, BATCH, discount)),
        "seed": repeated(100, lambda: sample_with_terminal_table(rng, buffer, BATCH, discount)),
        "numpy": repeated(1000, lambda: sample_numpy(rng, episodes, BATCH, (discount,), constraint_batches=0)[:2]),
        "scan": compiled(lambda each, data: jax.lax.scan(lambda _, key: (None, one(key, data)), None, each)[1]),
        "bulk": compiled(lambda each, data: jax.vmap(lambda key: one(key, data))(each)),
    }


def refuse_another_law(name: str, pairs: Any, law: np.ndarray) -> None:
    """Drawn pairs must be as frequent as the exact law says (chi-square over pairs expected five times or more).

    Raises:
        NotTheSame: they are not.
    """
    states, later_states = (np.asarray(column).ravel() for column in pairs)
    counts = np.bincount(states.astype(np.int64) * len(law) + later_states, minlength=law.size)
    expected = law.ravel() * len(states)
    often = expected >= 5
    rest = np.array([counts[~often].sum()]), np.array([expected[~often].sum()])
    found = chisquare(np.append(counts[often], rest[0]), np.append(expected[often], rest[1]))
    if found.pvalue < 1e-6:
        raise NotTheSame(f"{name}: {len(states):,} pairs do not follow the sampling law (p = {found.pvalue:.1e})")


# Preparation of the data.


def preparation_row(config: AlloConfig, rounds: int) -> Row:
    """A million transitions: the reference copies them scalar by scalar, the project walks and flattens."""
    walks = config.collect.num_envs
    columns = columns_of(collect(config, SEED).train, COPIED_WALKS)
    jax.clear_caches()  # so that the first call compiles
    times = race(
        {
            "before": Contestant(lambda: filled(*columns), COPIED_WALKS / walks),
            "ours": Contestant(lambda: collect(config, SEED)),
        },
        rounds,
    )
    goal = Goal(5, "before")
    return Row("prepare 1M transitions", "-", "-", "s", times["ours"], times["before"], goal=goal)


def columns_of(episodes: Episodes, walks: int) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(state, next state, ended) of the first walks, on the device as a compiled walk leaves them.

    Raises:
        NotTheSame: copying them does not give the same rows.
    """
    whole = rows_of(episodes)
    states, ended = whole.obs[:walks], whole.terminals[:walks]
    columns = jnp.asarray(states[:, :-1]), jnp.asarray(states[:, 1:]), jnp.asarray(ended[:, 1:])
    copied = filled(*columns)
    if not (np.array_equal(copied.obs, states) and np.array_equal(copied.terminals, ended)):
        raise NotTheSame("data preparation: the reference's rows differ from the project's trajectories")
    return columns


def filled(states: jax.Array, next_states: jax.Array, ended: jax.Array) -> RowBuffer:
    buffer = RowBuffer(len(states), states.shape[1] + 1)
    reference.fill(buffer, states, next_states, ended)
    return buffer


def whole_run_row(preparation: Row, step: Row) -> Row:
    """Collecting and all steps of the original's default work, from the two rows' times."""

    def whole(prepared: Times | None, stepped: Times | None) -> Times:
        assert prepared is not None
        assert stepped is not None
        seconds = prepared.seconds + WHOLE_RUN_STEPS * stepped.seconds
        return Times(seconds, prepared.compile_seconds + stepped.compile_seconds)

    before, project = whole(preparation.before, step.before), whole(preparation.ours, step.ours)
    name = f"collect + {WHOLE_RUN_STEPS:,} steps, room4"
    return Row(name, "000 overall", "2-3x", "s", project, before, goal=Goal(5, "before"))


# Reading params.yaml.


def check_row(root: Path, rounds: int) -> Row:
    """From the start of the process that checks a wrong params.yaml to its end."""
    with tempfile.TemporaryDirectory() as folder:
        text = (root / "params.yaml").read_text()
        (Path(folder) / "params.yaml").write_text(text.replace("batch_size: 256", "batch_size: -256"))
        paths = os.pathsep.join([str((root / "src").resolve()), str(root.resolve())])
        command = [sys.executable, "-m", "pipeline.params", "check"]

        def check() -> None:
            ended = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": paths}, capture_output=True)
            if ended.returncode != 2 or b"batch_size = -256" not in ended.stderr:
                raise NotTheSame(f"params check: exit {ended.returncode}, {ended.stderr.decode()}")

        times = race({"ours": Contestant(check)}, rounds)
    return Row("wrong params.yaml refused", "-", "-", "s", times["ours"], goal=Goal(CHECK_SECONDS, "limit"))
