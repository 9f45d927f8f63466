"""a folder of maps -> a table of allo's scores beside the paper's; outside DVC."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging.gate import rules_of
from pipeline.reporting.result_files import read_stored, write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.stage import prepare_process
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.params_file import read_input, read_params
from pipeline.studies.grids_table import MapResult, goal_lines, grids_table
from pipeline.studies.training import result_key, train_and_score
from quatrain.baselines import Rule
from quatrain.devices import on_device
from quatrain.envs.grid.catalogue import CATALOGUE
from quatrain.errors import ConfigError, DataError
from quatrain.models.allo.config import count_starts
from quatrain.params import Params
from quatrain.presets import read_raw
from quatrain.progress import TrainingDiverged
from quatrain.registry import MODELS, load
from quatrain.section import Content
from quatrain.storage import folders, formats
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.input_files import read_content
from quatrain.validation import overlaid, validate

OUT = "grids-out"
PAPER = Path("benchmarks/reference/allo_paper.json")
# Distance of the seeds of two repetitions; each one uses a few numbers from its own on.
STRIDE = 10


class Request(NamedTuple):
    """Holds what to run: a folder of maps, or the project's own catalogue if it is None.

    changes: of the section `allo` of the preset.
    """

    folder: Path | None
    preset: str
    changes: dict[str, Any]
    results_file: Path


def compare(root: Path, request: Request) -> None:
    """Runs the maps on the device of the preset; see `run_maps`.

    Raises:
        ConfigError: a map or the preset cannot be used, or the folder holds no map.
    """
    params = read_params(root, request.preset)
    prepare_process(params)
    with on_device(params, MODELS["allo"]):
        run_maps(root, request)


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
            stored |= {"key": key, "scores": formats.null_if_not_finite(scores)}
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


def layouts_of(folder: Path | None) -> dict[str, Path | str]:
    """Returns the maps by name: the files of a folder; None: the project's catalogue.

    Raises:
        ConfigError: the folder holds no map.
    """
    if folder is None:
        return {name: name for name in CATALOGUE}
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not paths:
        raise ConfigError(
            f"{folder} holds no map (*.txt); pass a folder of maps: make grids GRIDS=FOLDER"
        )
    return {path.stem: path for path in paths}


def run_maps(root: Path, request: Request) -> None:
    """Runs all maps; skips those that cannot be used.

    The scores of each map are stored in `results_file` at once, plots and the table in
    grids-out/PRESET.
    """
    layouts = layouts_of(request.folder)
    preset, results_file = request.preset, root / request.results_file
    out, paper = root / OUT / preset, folders.read_json(root / PAPER)
    by_preset = read_stored(results_file, "maps")
    maps: dict[str, Any] = by_preset.get(preset, {})
    results = []
    for number, (name, layout) in enumerate(layouts.items(), 1):
        console.info(f"[{number}/{len(layouts)}] {name}")
        try:
            params = params_for(root, preset, layout, request.changes)
            results.append(run_map(params, name, out, maps.setdefault(name, {})))
        except (ConfigError, DataError, TrainingDiverged) as error:
            file = layout.name if isinstance(layout, Path) else name
            console.info(f"grids: passed over {file}: {error}")
            continue
        content = settings(params, MODELS["allo"]) | {"maps": by_preset | {preset: maps}}
        write_lines(results_file, content, depth=5)
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
