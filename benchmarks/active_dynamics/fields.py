"""each field -> a table of errors by arm and transitions, and of transition ratios

Fields with results of the same params and code in benchmarks/results are not run again.
"""

import argparse
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.reporting.speed import as_json, write_lines
from pipeline.reporting.tables import markdown_table
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

MODEL = "active_dynamics"
RESULTS = Path("benchmarks/results/active_dynamics_fields.json")
BUILT_IN = "limit_cycle double_limit_cycle van_der_pol duffing snowman multi_attractor"
FIELDS = tuple(BUILT_IN.split())
ARMS = ("active", "random", "prbs")
REPLICATES, TRANSITIONS = 10, 2000
FASTER, ON = 5.0, 5
"""The goal: transition ratio to random actions, and the number of fields that reach it."""
NONE = {"parameters": {}, "matrix": None, "table_file": None}
"""Settings of a built-in field with its default parameters."""
COLUMNS = {
    "affine": "affine_field",
    "floor": "projection_floor",
    "random": "field_nrmse.random",
    "prbs": "field_nrmse.prbs",
    "active": "field_nrmse.active",
    "coverage": "coverage_90.active",
    "ratio to random": "transition_ratio.random",
    "ratio to prbs": "transition_ratio.prbs",
}


def main(argv: list[str] | None = None) -> int:
    name = "python -m benchmarks.active_dynamics.fields"
    parser = argparse.ArgumentParser(prog=name, description=__doc__)
    fields = {"nargs": "+", "choices": FIELDS, "metavar": "FIELD", "help": ", ".join(FIELDS)}
    replicates = "of each arm; intervals from 6 on"
    transitions = "of each learner, warm-up included"
    parser.add_argument("--fields", default=FIELDS, **fields)
    parser.add_argument("--replicates", type=int, default=REPLICATES, help=replicates)
    parser.add_argument("--transitions", type=int, default=TRANSITIONS, help=transitions)
    options = parser.parse_args(argv)
    return run_guarded("bench-active", lambda: compare(Path.cwd(), options))


def compare(root: Path, options: argparse.Namespace) -> None:
    """Runs all fields, stores the result of each at once, and prints the table."""
    params = params_for(root, options.fields[0], options)
    prepare_process(params)
    for kind in ("collect", "train", "evaluate"):
        getattr(load(MODEL), kind)
    path, results = root / RESULTS, {}
    done = json.loads(path.read_text())["fields"] if path.exists() else {}
    with on_device(params, MODELS[MODEL]):
        for number, field in enumerate(options.fields, 1):
            console.info(f"[{number}/{len(options.fields)}] {field}")
            field_params = params_for(root, field, options)
            key = key_of(field_params)
            if done.get(field, {}).get("key") != key:
                done[field] = {"key": key, **run_field(field_params, field)}
                content = {**settings(field_params, MODELS[MODEL]), "fields": done}
                write_lines(root / RESULTS, as_json(content), depth=3)
            results[field] = done[field]
    runs = f"{options.replicates} replicates [interval], after {options.transitions} transitions"
    print(f"relative error of the field, median of {runs}\n")
    print(table(results), "", *verdicts(results), sep="\n")


def params_for(root: Path, field: str, options: argparse.Namespace) -> Params:
    """Returns params.yaml with this field.

    Raises:
        ConfigError: params.yaml cannot be used, or not with so few transitions or replicates.
    """
    if options.replicates < 1:
        raise ConfigError(
            f"--replicates {options.replicates}: give at least 1, and 6 for intervals"
        )
    raw = read_raw(root, None)
    changes = {
        "seeds": options.replicates,
        "env": {"field": raw[MODEL]["env"]["field"] | NONE | {"kind": field}},
        "train": {"arms": list(ARMS), "transitions": options.transitions},
    }
    return validate(overlaid(raw, {MODEL: changes}), lambda name: read_input(root, str(name)))


def key_of(params: Params) -> str:
    """Returns the key of a field's result: config, seed, code, device and versions."""
    settled = {"config": getattr(params, MODEL).model_dump(mode="json"), "seed": params.seed}
    code = loaded_code(CHECKOUT, MODEL)
    return run_key("bench-active", settled, code, [], settings(params, MODELS[MODEL]))


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
    errors = judging.estimate_field(config, learner, progress.state, dataset).nrmse.round(6)
    by_arm = zip(ARMS, np.split(errors, len(ARMS), axis=1), strict=True)
    return {
        "scores": {name: float(score) for name, score in scores.items()},
        "transitions": list(states.checkpoint_steps(config)),
        "field_nrmse": {arm: nrmse.tolist() for arm, nrmse in by_arm},
        "seconds": time.monotonic() - began,
    }


# The table.


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the scores of each field, with intervals if there are any."""
    lines = []
    for field, result in results.items():
        scores = result["scores"]
        line = [field, *(scored(scores, name) for name in COLUMNS.values())]
        lines.append([*line, f"{result['seconds']:.0f}"])
    return markdown_table(("field", *COLUMNS, "seconds"), lines)


def scored(scores: dict[str, float], name: str) -> str:
    ends = [f"{scores[end]:.3g}" for end in (f"{name}_low", f"{name}_high") if end in scores]
    return f"{scores[name]:.3g}" + (f" [{' '.join(ends)}]" if ends else "")


def verdicts(results: dict[str, dict[str, Any]]) -> list[str]:
    """Returns lines about the goal and about the stronger rival."""
    lines = []
    for arm, least, goal in (("random", FASTER, f" (goal: {ON})"), ("prbs", 1, "")):
        name = f"transition_ratio.{arm}"
        reached = sum(result["scores"][name] >= least for result in results.values())
        lines.append(f"{name} is at least {least:g} on {reached} of {len(results)} fields{goal}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
