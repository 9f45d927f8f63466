"""each field -> a table of errors by arm and transitions, and of transition ratios

Fields with results of the same params and code in benchmarks/results are not run again.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.reporting.speed import as_json, write_lines
from pipeline.runtime import console
from pipeline.runtime.command import run_guarded
from pipeline.runtime.devices import on_device, settings
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import CHECKOUT, prepare_process
from pipeline.storage.params_file import overlaid, read_input, read_raw, validate
from pipeline.storage.run_key import loaded_code, run_key
from pipeline.tracking.progress_bar import ProgressBar
from quatrain.params import Params
from quatrain.registry import MODELS, load
from quatrain.statistics import median_interval

MODEL = "active_dynamics"
RESULTS = Path("benchmarks/results/active_dynamics_fields.json")
FIELDS = (
    "limit_cycle",
    "double_limit_cycle",
    "van_der_pol",
    "duffing",
    "snowman",
    "multi_attractor",
)
ARMS = ("active", "random", "prbs")
REPLICATES, TRANSITIONS = 10, 2000
MOMENTS = (100, 200, 400, 800)
"""Transitions at which the table shows the active arm's error, besides the last."""
FASTER, ON = 5.0, 5
"""The goal: transition ratio to random actions, and the number of fields that reach it."""
NONE = {"parameters": {}, "matrix": None, "table_file": None}
"""Settings of a built-in field with its default parameters."""
HEAD = (
    "field",
    "affine",
    "floor",
    "random",
    "prbs",
    *(f"active {moment}" for moment in MOMENTS),
    "active",
    "coverage",
    "ratio to random",
    "ratio to prbs",
    "seconds",
)


class Selection(NamedTuple):
    """Holds the fields, replicates and transitions of a table."""

    fields: tuple[str, ...]
    replicates: int
    transitions: int


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.active_dynamics.fields", description=__doc__
    )
    parser.add_argument(
        "--fields",
        nargs="+",
        choices=FIELDS,
        default=FIELDS,
        metavar="FIELD",
        help=", ".join(FIELDS),
    )
    parser.add_argument(
        "--replicates", type=int, default=REPLICATES, help="of each arm; intervals from 6 on"
    )
    parser.add_argument(
        "--transitions", type=int, default=TRANSITIONS, help="of each learner, warm-up included"
    )
    options = parser.parse_args(argv)
    selection = Selection(tuple(options.fields), options.replicates, options.transitions)
    return run_guarded("bench-active", lambda: compare(Path.cwd(), selection))


def compare(root: Path, selection: Selection) -> None:
    """Runs all fields, stores the result of each at once, and prints the table."""
    params = params_for(root, selection.fields[0], selection)
    prepare_process(params)
    for kind in ("collect", "train", "evaluate"):
        getattr(load(MODEL), kind)
    done, results = stored(root), {}
    with on_device(params, MODELS[MODEL]):
        for number, field in enumerate(selection.fields, 1):
            console.info(f"[{number}/{len(selection.fields)}] {field}")
            field_params = params_for(root, field, selection)
            key = key_of(field_params)
            if done.get(field, {}).get("key") != key:
                done[field] = {"key": key, **run_field(field_params, field)}
                content = {**settings(field_params, MODELS[MODEL]), "fields": done}
                write_lines(root / RESULTS, as_json(content), depth=3)
            results[field] = done[field]
    print("\n".join([heading(selection), "", table(results), "", *verdicts(results)]))


def params_for(root: Path, field: str, selection: Selection) -> Params:
    """Returns params.yaml with this field.

    Raises:
        ConfigError: params.yaml cannot be used, or not with so few transitions or replicates.
    """
    raw = read_raw(root, None)
    field_params = raw[MODEL]["env"]["field"] | NONE | {"kind": field}
    changes = {
        "seeds": selection.replicates,
        "env": {"field": field_params},
        "train": {"arms": list(ARMS), "transitions": selection.transitions},
    }
    if selection.replicates < 1:
        raise ConfigError(
            f"--replicates {selection.replicates}: give at least 1, and 6 for intervals"
        )
    return validate(overlaid(raw, {MODEL: changes}), lambda name: read_input(root, str(name)))


def key_of(params: Params) -> str:
    """Returns the key of a field's result: config, seed, code, device and versions."""
    options = {"config": getattr(params, MODEL).model_dump(mode="json"), "seed": params.seed}
    return run_key(
        "bench-active", options, loaded_code(CHECKOUT, MODEL), [], settings(params, MODELS[MODEL])
    )


def stored(root: Path) -> dict[str, Any]:
    """Returns the results of earlier runs."""
    path = root / RESULTS
    return dict(json.loads(path.read_text())["fields"]) if path.exists() else {}


def run_field(params: Params, field: str) -> dict[str, Any]:
    """Trains on a field; returns scores and the errors by arm, checkpoint and replicate."""
    config, began = getattr(params, MODEL), time.monotonic()
    learning, judging = load(MODEL).train, load(MODEL).evaluate
    dataset = load(MODEL).collect.collect(config, params.seed)
    with ProgressBar(field, config.train.steps, 0, learning.HEADLINE) as bar:
        for progress in learning.train(config, dataset, params.seed + 1):
            bar.show(progress)
    scores = judging.evaluate(config, progress.state, dataset, params.seed + 2)
    states = import_module(f"quatrain.models.{MODEL}.state")
    learner = states.TrainingState.from_state(config, dataset, progress.state).learner
    errors = judging.estimate_field(config, learner, progress.state, dataset).nrmse
    by_arm = np.split(errors, len(ARMS), axis=1)
    return {
        "scores": {name: float(score) for name, score in scores.items()},
        "transitions": list(states.checkpoint_steps(config)),
        "field_nrmse": {
            arm: field_params.round(6).tolist()
            for arm, field_params in zip(ARMS, by_arm, strict=True)
        },
        "seconds": time.monotonic() - began,
    }


# The table.


def heading(selection: Selection) -> str:
    return (
        f"relative error of the field, median of {selection.replicates} replicates [interval],"
        f" after {selection.transitions} transitions; of the active arm earlier, too"
    )


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the results in columns."""
    lines = [HEAD, *(cells(field, result) for field, result in results.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
    return "\n".join([padded[0], "-" * max(map(len, padded)), *padded[1:]])


def cells(field: str, result: dict[str, Any]) -> tuple[str, ...]:
    scores, active = result["scores"], np.array(result["field_nrmse"]["active"])
    last = {arm: spread(np.array(result["field_nrmse"][arm][-1])) for arm in ARMS}
    early = [spread(at(result["transitions"], active, moment)) for moment in MOMENTS]
    floors = (f"{scores[name]:.3f}" for name in ("affine_field", "projection_floor"))
    ratios = (scored(scores, f"transition_ratio.{arm}") for arm in ("random", "prbs"))
    coverage = f"{scores['coverage_90.active']:.2f}"
    return (
        field,
        *floors,
        last["random"],
        last["prbs"],
        *early,
        last["active"],
        coverage,
        *ratios,
        f"{result['seconds']:.0f}",
    )


def at(steps: Sequence[int], errors: np.ndarray, moment: int) -> np.ndarray:
    """Interpolates errors [replicate] at a transition, log against log; empty beyond the last."""
    if not steps[0] <= moment <= steps[-1]:
        return np.array([])
    logs = np.log(np.maximum(errors, 1e-12)).T
    return np.exp([np.interp(np.log(moment), np.log(steps), field_params) for field_params in logs])


def spread(values: np.ndarray) -> str:
    """Formats the median and its interval."""
    if not len(values):
        return "-"
    interval = median_interval(values)
    return f"{np.median(values):.3f}" + (
        "" if interval is None else f" [{interval.low:.3f} {interval.high:.3f}]"
    )


def scored(scores: dict[str, float], name: str) -> str:
    """Formats a score, with its interval if it has one."""
    has_interval = f"{name}_low" in scores
    return f"{scores[name]:.1f}" + (
        f" [{scores[f'{name}_low']:.1f} {scores[f'{name}_high']:.1f}]" if has_interval else ""
    )


def verdicts(results: dict[str, dict[str, Any]]) -> list[str]:
    """Returns lines about the goal and about the stronger rival."""
    ratios = {
        arm: [result["scores"][f"transition_ratio.{arm}"] for result in results.values()]
        for arm in ("random", "prbs")
    }
    reached = sum(ratio >= FASTER for ratio in ratios["random"])
    ahead = sum(ratio >= 1 for ratio in ratios["prbs"])
    return [
        f"transition_ratio.random is at least {FASTER:g} on {reached} of {len(results)} fields"
        f" (goal: {ON})",
        f"transition_ratio.prbs is at least 1 on {ahead} of {len(results)} fields",
    ]


if __name__ == "__main__":
    sys.exit(main())
