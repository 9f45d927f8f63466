"""maps -> scores of allo beside the paper's; maps of 1,000 to 60,000 states -> costs and cosine."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pipeline.judging.gate import rules_of
from pipeline.runtime.command import Options
from pipeline.trials import study
from pipeline.trials.study import Row, Study
from pipeline.trials.trial import make_trial
from quatrain.envs.grid.catalogue import CATALOGUE
from quatrain.envs.grid.layouts import count_states
from quatrain.errors import ConfigError
from quatrain.presets import read_raw
from quatrain.storage import folders
from quatrain.validation import overlaid

GRIDS_FILE = Path("benchmarks/results/allo_grids.json")
PAPER = Path("benchmarks/reference/allo_paper.json")
COLUMNS = {
    "cosine": "cosine_mean",
    "min": "cosine_min",
    "random": "floor_random",
    "without groups": "cosine_single",
    "orthogonality": "orthogonality",
    "relative λ error": "eigenvalue_relative_error_rayleigh",
}
# Vectors of equal eigenvalues count as one space, as in the paper's code.
PAPER_COLUMNS = {"paper's metric": "cosine_paper", "its ceiling": "ceiling_paper"}


def grids(root: Path, options: Options) -> Study:
    """Trains a preset on each map; each seed is a trial with data of its own.

    Raises:
        ConfigError: the folder holds no map, or one that cannot be used.
    """
    maps = maps_of(options.folder)
    raw = read_raw(root, options.preset)
    seeds = options.seeds or raw["allo"]["seeds"]
    steps = options.steps or raw["allo"]["train"]["steps"]
    paper = folders.read_json(root / PAPER)["layouts"]
    rows = {}
    for name, path in maps.items():
        layout = f"inputs/allo/{name}.txt" if path else name
        files = {layout: path} if path else {}
        section = {"seeds": 1, "env": {"layout": layout}, "train": {"steps": steps}}
        base = overlaid(raw, {"allo": section})
        trials = [
            make_trial(root, "allo", {**base, "seed": base["seed"] + number}, files)
            for number in range(seeds)
        ]
        states = count_states(trials[0].params.allo.env.map)
        facts = {"states": states, "seeds": seeds, "paper": paper.get(name, {}).get("allo", "-")}
        rows[f"{name}, preset {options.preset}, {steps} steps"] = Row(trials, facts)
    page = partial(study.table, "map", PAPER_COLUMNS | COLUMNS, rules_of("allo", options.preset))
    return Study(rows, GRIDS_FILE, page)


def maps_of(folder: Path) -> Mapping[str, Path | None]:
    """Returns the file of each map; those of the project's own catalogue have none.

    Raises:
        ConfigError: the folder holds no map.
    """
    if folder == Path("catalogue"):
        return dict.fromkeys(CATALOGUE)
    paths = sorted(folder.glob("*.txt"))
    if not paths:
        reason = "holds no map (*.txt); name a folder of maps: make grids GRIDS=FOLDER"
        raise ConfigError(f"{folder} {reason}")
    return {path.stem: path for path in paths}


STATES_FILE = Path("benchmarks/results/allo_states.json")
ROOMS = ("rows", "cols", "height", "width", "extra_doors", "seed")
# Map -> its ROOMS, the gradient steps, and the constraint. A hall of unequal sides has no symmetry.
# With `three` a step encodes only the states of the sampled batches; of more than 16,384 states all
# are too many.
MAPS = {
    "hall, 1,000": ((1, 1, 25, 40, 0, 0), 4000, "visits"),
    "rooms, 1,000": ((4, 4, 8, 8, 4, 0), 4000, "visits"),
    "hall, 10,000": ((1, 1, 80, 125, 0, 0), 4000, "visits"),
    "rooms, 10,000": ((4, 4, 25, 25, 4, 0), 4000, "visits"),
    "hall, 60,000": ((1, 1, 240, 250, 0, 0), 6000, "three"),
}


def states(root: Path, options: Options) -> Study:
    """Trains the preset `large` with smaller batches and fewer walks on some of MAPS, or on all.

    Raises:
        ConfigError: there is no such map.
    """
    rows = {}
    for name in options.maps or MAPS:
        if name not in MAPS:
            raise ConfigError(f"no map {name!r}; known: {'; '.join(MAPS)}")
        numbers, usual, constraint = MAPS[name]
        steps = options.steps or usual
        section = {
            "env": {"layout": "rooms", "rooms": dict(zip(ROOMS, numbers, strict=True))},
            # A third of the preset's: their pairs on 1,000 states take a minute.
            "collect": {"num_envs": 20_000},
            "train": {
                "steps": steps,
                "constraint": constraint,
                "batch_size": 1024,
                "evaluate_every": steps,
            },
        }
        trial = study.varied(root, "allo", "large", section)
        count = count_states(trial.params.allo.env.map)
        facts = {"constraint": constraint, "steps": steps, "states": count}
        rows[name if steps == usual else f"{name}, {steps} steps"] = Row([trial], facts)
    return Study(rows, STATES_FILE, partial(study.table, "map", COLUMNS, rules_of("allo", "large")))
