"""maps -> scores of allo beside the paper's; maps of 1,000 to 60,000 states -> costs and cosine."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pipeline.judging.gate import rules_of
from pipeline.judging.render import number
from pipeline.runtime.command import Options
from pipeline.trials import study
from pipeline.trials.study import Results, Row, Study
from pipeline.trials.trial import folder_of, make_trial
from quatrain.envs.grid.catalogue import CATALOGUE
from quatrain.envs.grid.layouts import count_states
from quatrain.errors import ConfigError
from quatrain.presets import read_raw
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably
from quatrain.validation import overlaid

GRIDS_FILE = Path("benchmarks/results/allo_grids.json")
OUT = Path("grids-out")
PAPER = Path("benchmarks/reference/allo_paper.json")
# Vectors of equal eigenvalues count as one space, as in the paper's code.
PAPER_METRIC = "cosine_paper"
GRID_COLUMNS = {
    "states": study.fact("states"),
    "seeds": lambda result: str(len(result.outcomes)),
    "cosine": study.mean("cosine_mean", has_interval=True),
    "min": study.mean("cosine_min"),
    "random": study.mean("floor_random", 2),
    "largest group": study.mean("group_largest", 0),
    "random, unscaled": study.mean("random_unscaled", 2),
    "without groups": study.mean("cosine_single"),
    "orthogonality": study.mean("orthogonality", 3),
    "paper's metric": study.mean(PAPER_METRIC, has_interval=True),
    "its random": study.mean("random_paper", 2),
    "its ceiling": study.mean("ceiling_paper"),
    "paper ALLO": lambda result: number(result.facts["paper"]),
    "index-wise": study.mean("cosine_index", has_interval=True),
    "random, index-wise": study.mean("random_index", 2),
    "λ error: quotient": study.mean("eigenvalue_error_rayleigh", 5),
    "corrected dual": study.mean("eigenvalue_error_corrected", 5),
    "dual": study.mean("eigenvalue_error_dual", 5),
    "CPU seconds": study.cpu_seconds(),
}
NOTE = "docs/results.md says what the columns mean: cosine ± 95 %, 1 for the true eigenvectors"


def grids(root: Path, options: Options) -> Study:
    """Trains a preset on each map; each seed is a trial with data of its own.

    Raises:
        ConfigError: the folder holds no map.
    """
    maps: dict[str, Path | None] = dict.fromkeys(CATALOGUE)
    if options.folder != Path("catalogue"):
        maps = {path.stem: path for path in sorted(options.folder.glob("*.txt"))}
    if not maps:
        reason = "holds no map (*.txt); name a folder of maps: make grids GRIDS=FOLDER"
        raise ConfigError(f"{options.folder} {reason}")
    raw = read_raw(root, options.preset)
    raw["allo"]["seeds"] = options.seeds or raw["allo"]["seeds"]
    raw["allo"]["train"]["steps"] = options.steps or raw["allo"]["train"]["steps"]
    rows = [grid_row(root, raw, name, path) for name, path in maps.items()]
    return Study(rows, GRIDS_FILE, partial(grid_page, root, options.preset, rows))


def grid_row(root: Path, raw: Mapping[str, Any], name: str, path: Path | None) -> Row:
    layout = f"inputs/allo/{name}.txt" if path else name
    alone = overlaid(raw, {"allo": {"seeds": 1, "env": {"layout": layout}}})
    seeds = range(raw["seed"], raw["seed"] + raw["allo"]["seeds"])
    files = {layout: path} if path else {}
    try:
        trials = [make_trial(root, "allo", {**alone, "seed": seed}, files) for seed in seeds]
    except ConfigError as error:
        return Row(name, (), refused=str(error))
    facts = {
        "map": name,
        "preset": raw["preset"],
        "steps": raw["allo"]["train"]["steps"],
        "states": count_states(trials[0].params.allo.env.map),
        "paper": folders.read_json(root / PAPER)["layouts"].get(name, {}).get("allo"),
    }
    return Row("{map}, preset {preset}, {steps} steps".format(**facts), trials, facts)


def grid_page(root: Path, preset: str, rows: Sequence[Row], results: Results) -> str:
    """Writes the table, and the pictures of each map's first seed, into OUT; returns the table."""
    out = OUT / preset
    by_map = {result.facts["map"]: result for result in results.values()}
    for row in rows:
        if row.name in results:
            plots = folder_of(root, row.trials[0]) / "reports" / "allo" / "plots"
            shutil.copytree(plots, root / out / row.facts["map"] / "plots", dirs_exist_ok=True)
    text = "\n".join(
        [study.table("map", GRID_COLUMNS, by_map), "", NOTE, *goal_lines(preset, by_map)]
    )
    write_durably(root / out / "table.md", f"{text}\n".encode())
    return f"{text}\n\ntable and plots: {out}"


def goal_lines(preset: str, results: Results) -> Iterator[str]:
    """Yields on how many maps the goals of the gate are reached by every seed, and the paper's
    score, a mean, by the mean.
    """
    for rule in rules_of("allo", preset):
        if rule.goal is not None:
            sign, most = (-1, "most") if rule.direction == "lower" else (1, "least")
            margins = {
                name: sign * (result.values(rule.metric) - rule.goal)
                for name, result in results.items()
            }
            yield study.goal_line(f"{rule.metric} is at {most} {rule.goal} by every seed", margins)
    margins = {
        name: result.values(PAPER_METRIC).mean(keepdims=True) - result.facts["paper"]
        for name, result in results.items()
        if result.facts["paper"] is not None
    }
    if margins:
        yield study.goal_line("paper's metric is at least the paper's ALLO in the mean", margins)


STATES_FILE = Path("benchmarks/results/allo_states.json")
# Up to so many states every step encodes all of them; on larger maps it encodes only those of the
# sampled batches, and the constraints are sampled too.
MOST_ROWS = 16_384
# 20 million transitions, a third of the preset's: their pairs on 1,000 states take a minute.
WALKS = 20_000
# Pairs of a batch.
STATES_BATCH = 1024
ROOMS = ("rows", "cols", "height", "width", "extra_doors", "seed")
# Map -> its ROOMS, and the gradient steps. A hall of unequal sides has no symmetry.
MAPS = {
    "hall, 1,000": ((1, 1, 25, 40, 0, 0), 4000),
    "rooms, 1,000": ((4, 4, 8, 8, 4, 0), 4000),
    "hall, 10,000": ((1, 1, 80, 125, 0, 0), 4000),
    "rooms, 10,000": ((4, 4, 25, 25, 4, 0), 4000),
    "hall, 60,000": ((1, 1, 240, 250, 0, 0), 6000),
}


STATES_COLUMNS = {
    "constraint": study.fact("constraint"),
    "steps": study.fact("steps", "{:,}"),
    "states": study.fact("states", "{:,}"),
    "collect": study.cpu_seconds("collect"),
    "train": study.cpu_seconds("train"),
    "evaluate": study.cpu_seconds("evaluate"),
    "cosine": study.mean("cosine_mean"),
    "min": study.mean("cosine_min"),
    "without groups": study.mean("cosine_single"),
    "orthogonality": study.mean("orthogonality", 3),
    "random": study.mean("random_unscaled", 2),
    "largest group": study.mean("group_largest", 0),
    "relative λ error": study.mean("eigenvalue_relative_error_rayleigh"),
}


def states(root: Path, options: Options) -> Study:
    """Trains the preset `large` with smaller batches on some of MAPS, or on all."""
    rows = [states_row(root, name, options) for name in options.maps or MAPS]
    return Study(rows, STATES_FILE, partial(study.table, "map", STATES_COLUMNS))


def states_row(root: Path, name: str, options: Options) -> Row:
    if name not in MAPS:
        raise ConfigError(f"no map {name!r}; known: {'; '.join(MAPS)}")
    numbers, steps = MAPS[name]
    rooms = dict(zip(ROOMS, numbers, strict=True))
    is_small = rooms["rows"] * rooms["cols"] * rooms["height"] * rooms["width"] <= MOST_ROWS
    train = {"steps": options.steps or steps, "constraint": "visits" if is_small else "three"}
    changes = {
        "env": {"layout": "rooms", "rooms": rooms},
        "collect": {"num_envs": WALKS},
        "train": {**train, "batch_size": options.batch, "evaluate_every": train["steps"]},
    }
    trial = study.varied(root, "allo", "large", changes)
    facts = {**train, "states": count_states(trial.params.allo.env.map)}
    usual = options.steps is None and options.batch == STATES_BATCH
    run = "" if usual else f", {train['steps']} steps of {options.batch}"
    return Row(f"{name}{run}", [trial], facts)
