"""a folder of maps -> a table of allo's scores beside the paper's; outside DVC."""

import sys
from pathlib import Path

from pipeline.runtime import options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.storage.params_file import check_params

RESULTS = Path("benchmarks/results/allo_grids.json")
CATALOGUE_WORD = "catalogue"


def add_options(parser: Parser) -> None:
    parser.add_argument(
        "folder",
        type=Path,
        help=f"maps as *.txt, in either text format; or {CATALOGUE_WORD}, the project's own maps",
    )
    options.add_preset(parser, default="large")
    parser.add_argument(
        "--steps",
        type=options.at_least(1),
        metavar="N",
        help="another number of gradient steps than the preset's",
    )
    parser.add_argument(
        "--seeds",
        type=options.at_least(1),
        metavar="N",
        help="another number of repetitions than allo.seeds",
    )
    parser.add_argument(
        "--results", type=Path, default=RESULTS, metavar="FILE", help=f"(default: {RESULTS})"
    )


main = Command(
    name="grids",
    summary="Trains allo on every map of a folder and compares the scores with the paper's.",
    add_options=add_options,
    check=check_params,
)

if __name__ == "__main__":  # wrong options and params are refused before the imports below
    sys.exit(main())

import os
import time
from collections.abc import Sequence
from typing import Any

from pipeline.judging.verdicts import rules_of
from pipeline.reporting.grids import MapResult, goal_lines, grids_table
from pipeline.reporting.speed import as_json, read_stored, write_lines
from pipeline.reporting.sweeps import result_key, train_and_score
from pipeline.runtime import console
from pipeline.runtime.devices import on_device, settings
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import prepare_process
from pipeline.storage import artifacts
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.params_file import overlaid, read_content, read_input, read_raw, validate
from quatrain.baselines import Rule
from quatrain.envs.grid.catalogue import CATALOGUE
from quatrain.errors import DataError
from quatrain.models.allo.config import count_starts
from quatrain.params import Params
from quatrain.progress import TrainingDiverged
from quatrain.registry import MODELS, load
from quatrain.section import Content
from quatrain.storage.atomic_write import write_durably

OUT = "grids-out"
PAPER = Path("benchmarks/reference/allo_paper.json")
# Distance of the seeds of two repetitions; each one uses a few numbers from its own on.
STRIDE = 10


def params_for(root: Path, preset: str, layout: Path | str, changes: dict[str, Any]) -> Params:
    """Returns the preset's params with this map, and at most as many components as states that
    start pairs.

    Raises:
        ConfigError: the map or the preset cannot be used.
    """

    def read(name: object) -> Content:
        if isinstance(layout, Path) and name == layout.name:
            return read_content(layout)
        return read_input(root, str(name))

    named = layout.name if isinstance(layout, Path) else layout
    changes = overlaid(changes, {"env": {"layout": named}})
    raw = overlaid(read_raw(root, preset), {"allo": changes})
    smallest = validate(overlaid(raw, {"allo": {"network": {"d": 1}}}), read)
    d = min(raw["allo"]["network"]["d"], count_starts(smallest.allo.env.map))
    return validate(overlaid(raw, {"allo": {"network": {"d": d}}}), read)


def run_map(params: Params, name: str, out: Path, done: dict[str, Any]) -> MapResult:
    """Repeats a map with as many seeds as the config has, each with data of its own.

    Repetitions whose key is in `done` are not run again; new ones are added to it. The first one
    is drawn.
    """
    alone = params.allo.model_copy(update={"seeds": 1})
    by_seed = []
    for index in range(params.allo.seeds):
        repeated = params.model_copy(
            update={"seed": params.seed + STRIDE * index, "allo": alone},
        )
        key = result_key("grids", repeated, "allo")
        stored = done.setdefault(str(repeated.seed), {})
        if stored.get("key") != key:
            scores = run_once(repeated, name, out / name if index == 0 else None)
            stored |= {"key": key, "scores": artifacts.null_if_not_finite(scores)}
        by_seed.append(stored["scores"])
    return MapResult(name, by_seed)


def run_once(params: Params, name: str, out: Path | None) -> dict[str, float]:
    """Collects, trains, evaluates, and with a folder `out` plots one repetition."""
    began = time.monotonic()
    dataset, state, curves, scores = train_and_score(params, "allo", name)
    scores["states"] = float(len(dataset.grid.coords))
    scores["seconds"] = time.monotonic() - began
    if out is not None:
        pictures = load("allo").plots.plots(params.allo, state, dataset, curves, scores)
        write_figures(out / "plots", encode(pictures))
    return scores


def layouts_of(folder: Path) -> dict[str, Path | str]:
    """Returns the maps by name: the files of a folder, or the project's own catalogue.

    Raises:
        ConfigError: the folder holds no map.
    """
    if str(folder) == CATALOGUE_WORD:
        return {name: name for name in CATALOGUE}
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not paths:
        raise ConfigError(
            f"{folder} holds no map (*.txt); pass a folder of maps: make grids GRIDS=FOLDER"
        )
    return {path.stem: path for path in paths}


def run_folder(
    root: Path,
    folder: Path,
    preset: str,
    changes: dict[str, Any],
    results_file: Path,
) -> None:
    """Runs all maps of a folder; skips maps that cannot be used.

    The scores of each map are stored in `results_file` at once, plots and the table in
    grids-out/PRESET.
    """
    layouts = layouts_of(folder)
    out, paper = root / OUT / preset, artifacts.read_json(root / PAPER)
    by_preset = read_stored(results_file, "maps")
    maps: dict[str, Any] = by_preset.get(preset, {})
    results = []
    for number, (name, layout) in enumerate(layouts.items(), 1):
        console.info(f"[{number}/{len(layouts)}] {name}")
        try:
            params = params_for(root, preset, layout, changes)
            results.append(run_map(params, name, out, maps.setdefault(name, {})))
        except (ConfigError, DataError, TrainingDiverged) as error:
            file = layout.name if isinstance(layout, Path) else name
            console.info(f"grids: passed over {file}: {error}")
            continue
        content = settings(params, MODELS["allo"]) | {"maps": by_preset | {preset: maps}}
        write_lines(results_file, as_json(content), depth=5)
    _show(results, rules_of("allo", preset), paper, out)
    if len(results) < len(layouts):
        raise ConfigError(
            f"{len(layouts) - len(results)} of {len(layouts)} maps could not be used; "
            "the lines above say why"
        )


def _show(
    results: list[MapResult],
    rules: Sequence[Rule],
    paper: dict[str, Any],
    out: Path,
) -> None:
    page = "\n".join(
        [
            grids_table(results, paper),
            "",
            "cosine: 1 for the true eigenvectors of the buffer, 0 for random numbers; ± 95 %.",
            "orthogonality: 0 for the truth, 1 if two components are the same.",
            "paper's metric: with the uniform policy's vectors, equal eigenvalues being one space;",
            "index-wise: with single vectors, which a symmetry leaves to chance.",
            f"Paper: {paper['source']}.",
            *goal_lines(results, rules, paper),
        ]
    )
    write_durably(out / "table.md", f"{page}\n".encode())
    print(f"{page}\n\ntable and plots: {os.path.relpath(out)}")


def run(args: Options) -> None:
    root = Path.cwd()
    changes: dict[str, Any] = {}
    if args.seeds is not None:
        changes["seeds"] = args.seeds
    if args.steps is not None:
        changes["train"] = {"steps": args.steps}
    params = validate(read_raw(root, args.preset), lambda name: read_input(root, str(name)))
    prepare_process(params)
    with on_device(params, MODELS["allo"]):
        run_folder(root, args.folder, args.preset, changes, root / args.results)
