"""maps of 10^3 to 6x10^4 states -> a table of what each part of allo costs, and how well it learns

Preset `large` with smaller batches. Up to MOST_ROWS states every step encodes all of them; on
larger maps it encodes only those of the sampled batches, and the constraints are sampled too.
"""

import argparse
import io
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import read_stored, write_lines
from pipeline.runtime.devices import settings
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from pipeline.studies.training import result_key, train
from quatrain.devices import on_device
from quatrain.params import Params
from quatrain.registry import MODELS, load

RESULTS = Path("benchmarks/results/allo_states.json")
MOST_ROWS = 16_384
WHOLE = {"extra_doors": 0, "seed": 0}
DOORS = {"extra_doors": 4, "seed": 0}
# 20 million transitions, a third of the preset's: their pairs on 1,000 states take a minute.
WALKS = 20_000


class Map(NamedTuple):
    """Holds the numbers of the generator `rooms`, and the gradient steps on this map."""

    rooms: dict[str, int]
    steps: int


# A hall of unequal sides has no symmetry.
MAPS = {
    "hall, 1,000": Map({"rows": 1, "cols": 1, "height": 25, "width": 40, **WHOLE}, 4000),
    "rooms, 1,000": Map({"rows": 4, "cols": 4, "height": 8, "width": 8, **DOORS}, 4000),
    "hall, 10,000": Map({"rows": 1, "cols": 1, "height": 80, "width": 125, **WHOLE}, 4000),
    "rooms, 10,000": Map({"rows": 4, "cols": 4, "height": 25, "width": 25, **DOORS}, 4000),
    "hall, 60,000": Map({"rows": 1, "cols": 1, "height": 240, "width": 250, **WHOLE}, 6000),
}
COLUMNS = {
    "states": "{:,.0f}",
    "collect": "{:.1f}",
    "truth": "{:.1f}",
    "ms/step": "{:.1f}",
    "training": "{:.0f}",
    "plots": "{:.1f}",
    "cosine": "{:.4f}",
    "min": "{:.4f}",
    "without groups": "{:.4f}",
    "orthogonality": "{:.3f}",
    "random": "{:.2f}",
    "largest group": "{:.0f}",
    "relative λ error": "{:.4f}",
}
SCORES = {
    "cosine": "cosine_mean",
    "min": "cosine_min",
    "without groups": "cosine_single",
    "orthogonality": "orthogonality",
    "random": "random_unscaled",
    "largest group": "group_largest",
    "relative λ error": "eigenvalue_relative_error_rayleigh",
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.allo.states", description=__doc__)
    parser.add_argument("maps", nargs="*", metavar="MAP", help=f"some of {'; '.join(MAPS)}")
    parser.add_argument("--steps", type=int, help="gradient steps (default: those of each map)")
    parser.add_argument("--batch", type=int, default=1024, help="batch size (default: 1024)")
    parser.add_argument("--results", type=Path, default=RESULTS)
    selected = parser.parse_args(argv)
    unknown = set(selected.maps) - MAPS.keys()
    if unknown:
        parser.error(f"no map {', '.join(sorted(unknown))}; known: {'; '.join(MAPS)}")
    root = Path.cwd()
    done = read_stored(selected.results, "maps")
    for name in selected.maps or MAPS:
        steps = selected.steps or MAPS[name].steps
        params = params_for(root, name, steps, selected.batch)
        prepare_process(params)
        key = result_key("bench-states", params, "allo")
        if done.get(name, {}).get("key") != key:
            with on_device(params, MODELS["allo"]):
                done[name] = {"key": key, "steps": steps, **measure(params, name)}
            content = {**settings(params, MODELS["allo"]), "maps": done}
            write_lines(selected.results, content, depth=3)
    print(table({name: done[name] for name in MAPS if name in done}))
    return 0


def params_for(root: Path, name: str, steps: int, batch: int) -> Params:
    """Returns preset `large` on one of the maps; few rows a step, for maps of any size."""
    numbers = MAPS[name].rooms
    cells = numbers["rows"] * numbers["cols"] * numbers["height"] * numbers["width"]
    train_keys = {
        "steps": steps,
        "batch_size": batch,
        "evaluate_every": steps,
        "constraint": "visits" if cells <= MOST_ROWS else "three",
    }
    changes = {
        "env": {"layout": "rooms", "rooms": numbers},
        "collect": {"num_envs": WALKS},
        "train": train_keys,
    }
    return read_params(root, "large", {"allo": changes})


def measure(params: Params, name: str) -> dict[str, Any]:
    """Returns the seconds of each part, and the scores."""
    model, config = load("allo"), params.allo
    seconds: dict[str, float] = {}

    @contextmanager
    def timed(part: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        seconds[part] = time.monotonic() - began

    with timed("collect"):
        dataset = model.collect.collect(config, params.seed)
    with timed("truth"):
        model.evaluate.true_spectrum(config, dataset)
    with timed("training"):
        state, history = train(params, "allo", name, dataset)
    with timed("evaluate"):
        scores = model.evaluate.evaluate(config, state, dataset, params.seed + 2)
    with timed("plots"):
        figures = model.plots.plots(config, state, dataset, history, scores)
        for figure in figures.values():
            figure.savefig(io.BytesIO(), format="png")
    return {
        "states": len(dataset.grid.coords),
        "constraint": config.train.constraint,
        "seconds": seconds,
        "ms/step": 1000 * seconds["training"] / config.train.steps,
        "scores": scores,
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats a row for each map; times in seconds."""
    lines = []
    for name, result in results.items():
        values = {key: result["scores"][metric] for key, metric in SCORES.items()}
        values |= result["seconds"] | {key: result[key] for key in ("states", "ms/step")}
        shown = [style.format(values[column]) for column, style in COLUMNS.items()]
        lines.append([name, result["constraint"], f"{result['steps']:,}", *shown])
    return markdown_table(("map", "constraint", "steps", *COLUMNS), lines)


if __name__ == "__main__":
    sys.exit(main())
