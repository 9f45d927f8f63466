"""fields, or decoders of seq_vae -> errors of active_dynamics by exploration policy."""

from functools import partial
from pathlib import Path
from typing import Any

from pipeline.runtime import console
from pipeline.runtime.command import Options
from pipeline.runtime.stage import Stage, prepare_process
from pipeline.trials import study
from pipeline.trials.study import Results, Row, Study
from pipeline.trials.trial import Trial
from quatrain.devices import on_device

MODEL = "active_dynamics"
FIELDS_FILE = Path("benchmarks/results/active_dynamics_fields.json")
DECODERS_FILE = Path("benchmarks/results/active_dynamics_decoders.json")
# Arms, and the goal for each: so many times the transitions of planned actions.
GOALS = (("random", 5), ("prbs", 1))
# Transitions of the pilot run that settings are chosen by, beside those of the training.
PILOT = 1500
SIZES = {"replicates": study.fact("replicates"), "transitions": study.fact("transitions")}
FIELD_COLUMNS = {
    **SIZES,
    "affine": study.score("affine_field"),
    "floor": study.score("projection_floor"),
    "teleport": study.score("teleport_reference"),
    "random": study.score("field_nrmse.random"),
    "prbs": study.score("field_nrmse.prbs"),
    "active": study.score("field_nrmse.active"),
    "coverage": study.score("coverage_90.active"),
    "ratio to random": study.score("transition_ratio.random"),
    "ratio to prbs": study.score("transition_ratio.prbs"),
    "CPU seconds": study.cpu_seconds(),
}
DECODER_COLUMNS = {
    **SIZES,
    "planned": study.score("field_nrmse.active"),
    "random": study.score("field_nrmse.random"),
    "share planned": study.score("planned.active"),
    "ratio to random": study.score("transition_ratio.random"),
    "CPU seconds": study.cpu_seconds(),
}


def fields(root: Path, options: Options) -> Study:
    """Trains all arms on each field."""
    train = {"arms": ["active", "random", "prbs"], "transitions": options.transitions}
    section = {"seeds": options.replicates, "train": train}
    rows = [field_row(root, name, section, options.choose) for name in options.fields]
    return Study(rows, FIELDS_FILE, field_page)


def field_row(root: Path, field: str, section: dict[str, Any], is_chosen: bool) -> Row:
    built_in: dict[str, Any] = {"kind": field, "parameters": {}, "matrix": None, "table_file": None}
    section = {**section, "env": {"field": built_in}}
    row = row_of(field, study.varied(root, MODEL, None, section))
    if not is_chosen:
        return row
    settings = choose(root, row.trials[0])
    trial = study.varied(root, MODEL, None, {**section, "network": settings})
    facts = {**row.facts, "pilot_transitions": PILOT, "settings": settings}
    return Row(f"{field}, chosen by {PILOT} more transitions", [trial], facts)


def field_page(results: Results) -> str:
    lines = [study.table("field", FIELD_COLUMNS, results), ""]
    for arm, goal in GOALS:
        name = f"transition_ratio.{arm}"
        margins = {field: result.values(name) - goal for field, result in results.items()}
        lines.append(study.goal_line(f"{name} is at least {goal}", margins))
    return "\n".join(lines)


def decoders(root: Path, options: Options) -> Study:
    """Trains the preset seq_vae with each decoder, on observations that it is made for."""
    rows = []
    for name in options.decoders:
        kind = "loglinear" if name == "loglinear" else "linear"
        section = {"env": {"observation": {"kind": kind}}, "network": {"decoder": name}}
        trial = study.varied(root, MODEL, "seq_vae", {"seeds": options.replicates, **section})
        rows.append(row_of(name, trial))
    return Study(rows, DECODERS_FILE, partial(study.table, "decoder", DECODER_COLUMNS))


def row_of(name: str, trial: Trial) -> Row:
    config = trial.params.active_dynamics
    facts = {"replicates": config.seeds, "transitions": config.train.transitions}
    return Row(name, [trial], facts)


def choose(root: Path, trial: Trial) -> dict[str, Any]:
    """Returns the features and noise with the best evidence in a pilot run (`selection`)."""
    prepare_process(trial.params)
    from quatrain.models.active_dynamics import collect, selection

    stage = Stage("collect", MODEL, root, trial.params)
    with on_device(trial.params, stage.framework):
        dataset = collect.collect(stage.config, stage.seed("collect"))
        scored = selection.choose(stage.config, dataset, stage.seed("choose"), PILOT)
    for candidate in scored:
        console.info(f"{candidate.nats:.3f} nats per transition with {candidate.changes}")
    return scored[-1].changes
