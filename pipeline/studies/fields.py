"""each field -> a table of errors by arm and transitions, and of transition ratios.

Fields with results of the same params and code in benchmarks/results are not run again.
"""

import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import format_score, read_stored, write_lines
from pipeline.runtime import console
from pipeline.runtime.devices import settings
from pipeline.runtime.stage import prepare_process
from pipeline.storage.params_file import read_params
from pipeline.studies.training import result_key, train_and_score
from quatrain.devices import on_device
from quatrain.errors import ConfigError
from quatrain.params import Params
from quatrain.registry import MODELS, load
from quatrain.storage.formats import null_if_not_finite

MODEL = "active_dynamics"
RESULTS = Path("benchmarks/results/active_dynamics_fields.json")
ARMS = ("active", "random", "prbs")
# The goal: transition ratio to random actions, and the number of fields that reach it.
FASTER, ON = 5.0, 5
# Settings of a built-in field with its default parameters.
NONE: dict[str, Any] = {"parameters": {}, "matrix": None, "table_file": None}
COLUMNS = {
    "affine": "affine_field",
    "floor": "projection_floor",
    "teleport": "teleport_reference",
    "random": "field_nrmse.random",
    "prbs": "field_nrmse.prbs",
    "active": "field_nrmse.active",
    "coverage": "coverage_90.active",
    "ratio to random": "transition_ratio.random",
    "ratio to prbs": "transition_ratio.prbs",
}


class Request(NamedTuple):
    """Holds what to run. pilot_transitions: further ones that settings are chosen by; 0: none."""

    fields: Sequence[str]
    replicates: int
    transitions: int
    pilot_transitions: int


def compare(root: Path, request: Request) -> None:
    """Runs all fields, stores the result of each at once, and prints the table."""
    params = params_for(root, request.fields[0], request)
    prepare_process(params)
    pilot = request.pilot_transitions
    path = root / RESULTS
    done = read_stored(path, "fields")
    results = {}
    with on_device(params, MODELS[MODEL]):
        for number, field in enumerate(request.fields, 1):
            console.info(f"[{number}/{len(request.fields)}] {field}")
            field_params = params_for(root, field, request)
            name, study = field, "run_field"
            if pilot:
                name, study = f"{field}, chosen by {pilot} more transitions", "run_with_choice"
            key = result_key(f"bench-active {study}", field_params, MODEL)
            if done.get(name, {}).get("key") != key:
                done[name] = {"key": key, **learn(field_params, field, pilot)}
                content = {**settings(field_params, MODELS[MODEL]), "fields": done}
                write_lines(path, content, depth=3)
            results[name] = done[name]
    runs = f"{request.replicates} replicates [interval], after {request.transitions} transitions"
    print(f"relative error of the field, median of {runs}\n")
    print(table(results), "", *verdicts(results), sep="\n")


def params_for(root: Path, field: str, request: Request) -> Params:
    """Returns params.yaml with this field.

    Raises:
        ConfigError: params.yaml cannot be used, or not with so few transitions or replicates.
    """
    if request.replicates < 1:
        raise ConfigError(
            f"--replicates {request.replicates}: give at least 1, and 6 for intervals"
        )
    committed = read_params(root).active_dynamics.env.field.model_dump()
    changes = {
        "seeds": request.replicates,
        "env": {"field": committed | NONE | {"kind": field}},
        "train": {"arms": list(ARMS), "transitions": request.transitions},
    }
    return read_params(root, None, {MODEL: changes})


def learn(params: Params, field: str, pilot: int) -> dict[str, Any]:
    """Trains on a field, with settings chosen on so many transitions if there are any."""
    return run_with_choice(params, field, pilot) if pilot else run_field(params, field)


def run_field(params: Params, field: str) -> dict[str, Any]:
    """Trains on a field; returns scores and the errors by arm, checkpoint and replicate."""
    config, began = params.active_dynamics, time.monotonic()
    dataset, state, _, scores = train_and_score(params, MODEL, field)
    states = import_module(f"quatrain.models.{MODEL}.state")
    learner = states.TrainingState.from_state(config, dataset, state).learner
    estimate_field = import_module(f"quatrain.models.{MODEL}.evaluate").estimate_field
    errors = estimate_field(config, learner, state, dataset).nrmse.round(6)
    by_arm = zip(ARMS, np.split(errors, len(ARMS), axis=1), strict=True)
    return {
        "scores": null_if_not_finite(scores),
        "transitions": list(states.checkpoint_steps(config)),
        "field_nrmse": {arm: nrmse.tolist() for arm, nrmse in by_arm},
        "seconds": time.monotonic() - began,
    }


def run_with_choice(params: Params, field: str, pilot: int) -> dict[str, Any]:
    """Chooses features and noise by the evidence of a pilot run, then trains; see `selection`.

    The result names the settings, and the transitions of each replicate that they cost.
    """
    config, began = params.active_dynamics, time.monotonic()
    dataset = load(MODEL).collect.collect(config, params.seed)
    selection = import_module(f"quatrain.models.{MODEL}.selection")
    scored = selection.choose(config, dataset, params.seed + 1, pilot)
    for candidate in scored:
        console.info(f"{field}: {candidate.nats:.3f} nats per transition with {candidate.changes}")
    best = selection.changed(config, scored[-1].changes)
    result = run_field(params.model_copy(update={MODEL: best}), field)
    cost = {"pilot_transitions": pilot, "seconds": time.monotonic() - began}
    return result | {"settings": scored[-1].changes} | cost


def table(results: dict[str, dict[str, Any]]) -> str:
    """Formats the scores of each field, with intervals if there are any."""
    lines = []
    for field, result in results.items():
        scores = result["scores"]
        line = [field, *(format_score(scores, name) for name in COLUMNS.values())]
        lines.append([*line, f"{result['seconds']:.0f}"])
    return markdown_table(("field", *COLUMNS, "seconds"), lines)


def verdicts(results: dict[str, dict[str, Any]]) -> list[str]:
    """Returns lines about the goal and about the stronger rival."""
    lines = []
    for arm, least, goal in (("random", FASTER, f" (goal: {ON})"), ("prbs", 1, "")):
        name = f"transition_ratio.{arm}"
        scores = [result["scores"][name] for result in results.values()]
        reached = sum(score is not None and score >= least for score in scores)
        lines.append(f"{name} is at least {least:g} on {reached} of {len(results)} fields{goal}")
    return lines
