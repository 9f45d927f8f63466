"""a folder of maps -> a table of allo's scores beside the paper's, in grids-out/ outside DVC."""

import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.reporting.sweeps import result_key, train
from pipeline.reporting.tables import markdown_table
from pipeline.runtime import console, options
from pipeline.runtime.command import Command, Options, Parser
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import prepare_process
from pipeline.storage import artifacts
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.figures import png, write_figures
from pipeline.storage.input_files import read_content
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from quatrain.errors import DataError
from quatrain.models.allo.config import count_starts
from quatrain.params import Params
from quatrain.progress import TrainingDiverged
from quatrain.registry import load
from quatrain.section import Content

OUT = "grids-out"
PAPER = Path("benchmarks/reference/allo_paper.json")
HEAD = (
    "map",
    "states",
    "cosine mean",
    "min",
    "groups",
    "paper's metric",
    "its ceiling",
    "paper ALLO",
    "paper GGDO",
    "seconds",
)


class MapResult(NamedTuple):
    name: str
    scores: dict[str, float]
    note: str = ""


def params_for(root: Path, preset: str, path: Path, changes: dict[str, Any]) -> Params:
    """Returns the preset's params with this map, and at most as many components as states that
    start pairs.

    Raises:
        ConfigError: the map or the preset cannot be used.
    """

    def read(name: object) -> Content:
        return read_content(path) if name == path.name else read_input(root, str(name))

    changes = overlaid(changes, {"env": {"layout": path.name}})
    raw = overlaid(read_raw(root, preset), {"allo": changes})
    smallest = validate(overlaid(raw, {"allo": {"network": {"d": 1}}}), read)
    d = min(raw["allo"]["network"]["d"], count_starts(smallest.allo.env.map))
    return validate(overlaid(raw, {"allo": {"network": {"d": d}}}), read)


def run_map(params: Params, name: str, out: Path) -> MapResult:
    """Collects, trains, evaluates and plots a map, or returns an earlier result of the same key."""
    key = result_key("grids", params, "allo")
    path = out / name / "scores.json"
    if path.exists():
        stored = artifacts.read_json(path)
        if stored.get("key") == key:
            return MapResult(name, stored["scores"], "done before")
    began = time.monotonic()
    model = load("allo")
    dataset = model.collect.collect(params.allo, params.seed)
    state, curves = train(params, "allo", name, dataset)
    scores = model.evaluate.evaluate(params.allo, state, dataset, params.seed + 2)
    scores["states"] = float(len(dataset.grid.coords))
    scores["seconds"] = time.monotonic() - began
    files = {
        f"{title}.png": png(figure)
        for title, figure in model.plots.plots(params.allo, state, dataset, curves, scores).items()
    }
    write_figures(out / name / "plots", files)
    artifacts.write_json(path, {"key": key, "scores": artifacts.null_if_not_finite(scores)})
    return MapResult(name, scores)


def cells(result: MapResult, paper: dict[str, Any]) -> list[str]:
    """Returns a row of the table, with '-' for numbers that do not exist for this map."""
    scores = result.scores
    reference = paper["layouts"].get(result.name, {})
    return [
        result.name,
        shown(scores.get("states"), decimals=0),
        shown(scores.get("cosine_mean")),
        shown(scores.get("cosine_min")),
        shown(scores.get("groups"), decimals=0),
        shown(scores.get("cosine_paper")),
        shown(scores.get("ceiling_paper")),
        shown(reference.get("allo")),
        shown(reference.get("ggdo")),
        f"{shown(scores.get('seconds'), decimals=0)} {result.note}".strip(),
    ]


def shown(value: float | None, decimals: int = 4) -> str:
    return "-" if value is None else f"{value:.{decimals}f}"


def run_folder(root: Path, folder: Path, preset: str, changes: dict[str, Any]) -> None:
    """Runs all maps of a folder, each in its part of grids-out/PRESET; skips maps that cannot be
    used.
    """
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not paths:
        raise ConfigError(
            f"{folder} holds no map (*.txt); pass a folder of maps: make grids GRIDS=FOLDER"
        )
    out = root / OUT / preset
    paper = artifacts.read_json(root / PAPER)
    results = []
    for number, path in enumerate(paths, 1):
        console.info(f"[{number}/{len(paths)}] {path.stem}")
        try:
            results.append(run_map(params_for(root, preset, path, changes), path.stem, out))
        except (ConfigError, DataError, TrainingDiverged) as error:
            console.info(f"grids: passed over {path.name}: {error}")
    page = markdown_table(HEAD, [cells(result, paper) for result in results])
    write_durably(out / "table.md", f"{page}\n\nPaper: {paper['source']}.\n".encode())
    print(f"{page}\n\ntable and plots: {os.path.relpath(out, root)}")
    if len(results) < len(paths):
        raise ConfigError(
            f"{len(paths) - len(results)} of {len(paths)} maps could not be used; "
            "the lines above say why"
        )


def add_options(parser: Parser) -> None:
    parser.add_argument("folder", type=Path, help="maps as *.txt, in either text format")
    options.add_preset(parser, default="large")
    parser.add_argument(
        "--steps", type=int, metavar="N", help="another number of gradient steps than the preset's"
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="another number of learners than the preset's"
    )


def run(args: Options) -> None:
    root = Path.cwd()
    changes: dict[str, Any] = {}
    if args.seeds is not None:
        changes["seeds"] = args.seeds
    if args.steps is not None:
        changes["train"] = {"steps": args.steps}
    prepare_process(validate(read_raw(root, args.preset), lambda name: read_input(root, str(name))))
    run_folder(root, args.folder, args.preset, changes)


main = Command(
    name="grids",
    summary="Trains allo on every map of a folder and compares the scores with the paper's.",
    work=run,
    add_options=add_options,
)

if __name__ == "__main__":
    sys.exit(main())
