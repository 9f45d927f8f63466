"""each field -> how wrong every arm is after how many transitions, and how much sooner the active one knew: one table.

Fields that are in benchmarks/results already, of the same params and code, are taken as they are.
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

from pipeline.runtime import console
from pipeline.runtime.command import run_guarded
from pipeline.runtime.devices import on_device, settings
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.stage import CHECKOUT, prepare_process
from pipeline.storage.atomic_write import write_durably
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
"""Transitions after which the active arm's error is told, beside the last."""
FASTER, ON = 5.0, 5
"""The goal: so many times fewer transitions than random ones, on so many fields."""
NONE = {"parameters": {}, "matrix": None, "table_file": None}
"""Of a field that is built in, with its own numbers."""
HEAD = (
    "field", "affine", "floor", "random", "prbs", *(f"active {moment}" for moment in MOMENTS), "active", "coverage",
    "ratio to random", "ratio to prbs", "seconds",
)  # fmt: skip


class Chosen(NamedTuple):
    """What a table is of."""

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
    given = parser.parse_args(argv)
    chosen = Chosen(tuple(given.fields), given.replicates, given.transitions)
    return run_guarded("bench-active", lambda: compare(Path.cwd(), chosen))


def compare(root: Path, chosen: Chosen) -> None:
    """All fields, and the table of them; what is done is kept field by field."""
    params = params_for(root, chosen.fields[0], chosen)
    prepare_process(params)
    for kind in ("collect", "train", "evaluate"):
        getattr(load(MODEL), kind)
    done, found = stored(root), {}
    with on_device(params, MODELS[MODEL]):
        for number, field in enumerate(chosen.fields, 1):
            console.info(f"[{number}/{len(chosen.fields)}] {field}")
            own = params_for(root, field, chosen)
            key = key_of(own)
            if done.get(field, {}).get("key") != key:
                done[field] = {"key": key, **learned(own, field)}
                text = json.dumps({**settings(own, MODELS[MODEL]), "fields": done}, indent=1)
                write_durably(root / RESULTS, f"{text}\n".encode())
            found[field] = done[field]
    print("\n".join([heading(chosen), "", table(found), "", *verdicts(found)]))


def params_for(root: Path, field: str, chosen: Chosen) -> Params:
    """params.yaml with this field.

    Raises:
        ConfigError: params.yaml cannot be used, or not with so few transitions or replicates.
    """
    raw = read_raw(root, None)
    own = raw[MODEL]["env"]["field"] | NONE | {"kind": field}
    changes = {
        "seeds": chosen.replicates,
        "env": {"field": own},
        "train": {"arms": list(ARMS), "transitions": chosen.transitions},
    }
    if chosen.replicates < 1:
        raise ConfigError(f"--replicates {chosen.replicates}: give at least 1, and 6 for intervals")
    return validate(overlaid(raw, {MODEL: changes}), lambda name: read_input(root, str(name)))


def key_of(params: Params) -> str:
    """Names the result of a field: config, seed, code, device and versions."""
    given = {"config": getattr(params, MODEL).model_dump(mode="json"), "seed": params.seed}
    return run_key(
        "bench-active", given, loaded_code(CHECKOUT, MODEL), [], settings(params, MODELS[MODEL])
    )


def stored(root: Path) -> dict[str, Any]:
    """What an earlier run has kept."""
    path = root / RESULTS
    return dict(json.loads(path.read_text())["fields"]) if path.exists() else {}


def learned(params: Params, field: str) -> dict[str, Any]:
    """Scores of a field, and by arm the error of each checkpoint and replicate."""
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
        "field_nrmse": {arm: own.round(6).tolist() for arm, own in zip(ARMS, by_arm, strict=True)},
        "seconds": time.monotonic() - began,
    }


# The table.


def heading(chosen: Chosen) -> str:
    return (
        f"relative error of the field, median of {chosen.replicates} replicates [interval], after "
        f"{chosen.transitions} transitions; of the active arm earlier, too"
    )


def table(found: dict[str, dict[str, Any]]) -> str:
    """Text in columns."""
    lines = [HEAD, *(cells(field, result) for field, result in found.items())]
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
        field, *floors, last["random"], last["prbs"], *early, last["active"], coverage, *ratios,
        f"{result['seconds']:.0f}",
    )  # fmt: skip


def at(steps: Sequence[int], errors: np.ndarray, moment: int) -> np.ndarray:
    """Errors [replicate] after so many transitions, interpolated, logarithm against logarithm; none beyond the last."""
    if not steps[0] <= moment <= steps[-1]:
        return np.array([])
    logs = np.log(np.maximum(errors, 1e-12)).T
    return np.exp([np.interp(np.log(moment), np.log(steps), own) for own in logs])


def spread(values: np.ndarray) -> str:
    """Median and interval."""
    if not len(values):
        return "-"
    interval = median_interval(values)
    return f"{np.median(values):.3f}" + (
        "" if interval is None else f" [{interval.low:.3f} {interval.high:.3f}]"
    )


def scored(scores: dict[str, float], name: str) -> str:
    """A score of evaluate, with its interval where it has one."""
    known = f"{name}_low" in scores
    return f"{scores[name]:.1f}" + (
        f" [{scores[f'{name}_low']:.1f} {scores[f'{name}_high']:.1f}]" if known else ""
    )


def verdicts(found: dict[str, dict[str, Any]]) -> list[str]:
    """Whether the goal is reached, and how the stronger rival fares."""
    ratios = {
        arm: [result["scores"][f"transition_ratio.{arm}"] for result in found.values()]
        for arm in ("random", "prbs")
    }
    reached = sum(ratio >= FASTER for ratio in ratios["random"])
    ahead = sum(ratio >= 1 for ratio in ratios["prbs"])
    return [
        f"transition_ratio.random is at least {FASTER:g} on {reached} of {len(found)} fields (goal: {ON})",
        f"transition_ratio.prbs is at least 1 on {ahead} of {len(found)} fields",
    ]


if __name__ == "__main__":
    sys.exit(main())
