"""a folder of maps -> one table of allo with one preset, beside the paper's: outside DVC, into grids-out/."""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime import console
from pipeline.runtime.command import run_guarded
from pipeline.runtime.devices import settings
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import CHECKOUT, prepare_process
from pipeline.storage import artifacts
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.figures import png, write_figures
from pipeline.storage.input_files import read_content
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from pipeline.storage.run_key import loaded_code, run_key
from pipeline.tracking.progress_bar import Bar
from quatrain.errors import DataError
from quatrain.models.allo.config import count_starts
from quatrain.params import Params
from quatrain.progress import History, Row, TrainingDiverged, history, rows
from quatrain.registry import MODELS, load
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


class MapRow(NamedTuple):
    """One map of the table."""

    name: str
    scores: dict[str, float]
    note: str = ""


def params_for(root: Path, preset: str, path: Path, changes: dict[str, Any]) -> Params:
    """The preset's params with this map, and at most as many components as states of it start pairs.

    Raises:
        ConfigError: the map or the preset cannot be used.
    """
    raw = overlaid(
        read_raw(root, preset), {"allo": overlaid(changes, {"env": {"layout": path.name}})}
    )

    def read(name: object) -> Content:
        return read_content(path) if name == path.name else read_input(root, str(name))

    few = validate(overlaid(raw, {"allo": {"network": {"d": 1}}}), read)
    d = min(raw["allo"]["network"]["d"], count_starts(few.allo.env.map))
    return validate(overlaid(raw, {"allo": {"network": {"d": d}}}), read)


def key_of(params: Params) -> str:
    """Names the result of a map: config, seeds, code, device and versions."""
    for kind in ("collect", "train", "evaluate", "plots"):
        getattr(load("allo"), kind)
    given = {"config": params.allo.model_dump(mode="json"), "seed": params.seed}
    return run_key(
        "grids", given, loaded_code(CHECKOUT, "allo"), [], settings(params, MODELS["allo"])
    )


def learn(params: Params, name: str, out: Path) -> MapRow:
    """Collect, train, evaluate and draw one map; an earlier result of the same key is taken as it is."""
    config, key, done = params.allo, key_of(params), out / name / "scores.json"
    if done.exists() and (stored := artifacts.read_json(done)).get("key") == key:
        return MapRow(name, stored["scores"], "done before")
    began = time.monotonic()
    dataset = load("allo").collect.collect(config, params.seed)
    state, recorded = follow(params, name, dataset)
    scores = load("allo").evaluate.evaluate(config, state, dataset, params.seed + 2)
    scores |= {"states": float(len(dataset.grid.coords)), "seconds": time.monotonic() - began}
    figures = load("allo").plots.plots(config, state, dataset, recorded, scores)
    write_figures(
        out / name / "plots", {f"{title}.png": png(figure) for title, figure in figures.items()}
    )
    artifacts.write_json(done, {"key": key, "scores": artifacts.null_if_not_finite(scores)})
    return MapRow(name, scores)


def follow(params: Params, name: str, dataset: Any) -> tuple[Any, History]:
    """The trained learner, and its history by metric."""
    learning = load("allo").train
    found: list[Row] = []
    start = 0
    with Bar(name, params.allo.train.steps, start, learning.HEADLINE) as bar:
        for progress in learning.train(params.allo, dataset, params.seed + 1):
            found += rows(progress, start)
            bar.show(progress)
            start = progress.step
    return progress.state, history(found)


def cells(row: MapRow, paper: dict[str, Any]) -> list[str]:
    """The row as it stands in the table; '-' where a number does not exist for this map."""
    known = paper["layouts"].get(row.name, {})
    shown = [row.scores.get(name) for name in ("cosine_mean", "cosine_min")]
    shown += [
        row.scores.get("groups"),
        row.scores.get("cosine_paper"),
        row.scores.get("ceiling_paper"),
    ]
    shown += [known.get("allo"), known.get("ggdo")]
    texts = ["-" if value is None else f"{value:.4f}" for value in shown]
    texts[2] = texts[2].split(".")[0]
    states, seconds = (
        f"{row.scores[name]:.0f}" if name in row.scores else "-" for name in ("states", "seconds")
    )
    return [row.name, states, *texts, f"{seconds} {row.note}".strip()]


def table(rows_of_maps: list[MapRow], paper: dict[str, Any]) -> str:
    """A Markdown table."""
    body = [cells(row, paper) for row in rows_of_maps]
    widths = [max(len(line[i]) for line in [list(HEAD), *body]) for i in range(len(HEAD))]
    lines = [list(HEAD), ["-" * width for width in widths], *body]
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def sweep(root: Path, folder: Path, preset: str, changes: dict[str, Any]) -> None:
    """All maps of the folder, each in its part of grids-out/PRESET; one that cannot be used is told and passed over."""
    paths = sorted(path for path in folder.glob("*.txt") if path.is_file())
    if not paths:
        raise ConfigError(
            f"{folder} holds no map (*.txt); pass a folder of maps: make grids GRIDS=FOLDER"
        )
    out, paper = root / OUT / preset, artifacts.read_json(root / PAPER)
    found, refused = [], []
    for number, path in enumerate(paths, 1):
        console.info(f"[{number}/{len(paths)}] {path.stem}")
        try:
            found.append(learn(params_for(root, preset, path, changes), path.stem, out))
        except (ConfigError, DataError, TrainingDiverged) as error:
            refused.append(path.name)
            console.info(f"grids: passed over {path.name}: {error}")
    page = table(found, paper)
    write_durably(out / "table.md", f"{page}\n\nPaper: {paper['source']}.\n".encode())
    print(f"{page}\n\ntable and plots: {os.path.relpath(out, root)}")
    if refused:
        raise ConfigError(
            f"{len(refused)} of {len(paths)} maps could not be used; the lines above say why"
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.commands.grids", description=__doc__)
    parser.add_argument("folder", type=Path, help="maps as *.txt, in either text format")
    parser.add_argument("--preset", default="large", help="a file of presets/, without .yaml")
    parser.add_argument(
        "--steps", type=int, help="another number of gradient steps than the preset's"
    )
    parser.add_argument("--seeds", type=int, help="another number of learners than the preset's")
    chosen = parser.parse_args(argv)
    changes: dict[str, Any] = {} if chosen.seeds is None else {"seeds": chosen.seeds}
    if chosen.steps is not None:
        changes["train"] = {"steps": chosen.steps}
    root = Path.cwd()

    def work() -> None:
        prepare_process(
            validate(read_raw(root, chosen.preset), lambda name: read_input(root, str(name)))
        )
        sweep(root, chosen.folder, chosen.preset, changes)

    return run_guarded("grids", work)


if __name__ == "__main__":
    sys.exit(main())
