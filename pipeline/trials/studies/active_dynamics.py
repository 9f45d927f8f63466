"""fields, or decoders of seq_vae -> errors of active_dynamics by exploration policy."""

from functools import partial
from pathlib import Path
from typing import Any

from pipeline.judging.gate import rules_of
from pipeline.runtime.command import Options
from pipeline.trials import study
from pipeline.trials.study import Row, Study
from quatrain.envs.vector_field.kinds import FORMULAS

MODEL = "active_dynamics"
FIELDS_FILE = Path("benchmarks/results/active_dynamics_fields.json")
DECODERS_FILE = Path("benchmarks/results/active_dynamics_decoders.json")
# The other kinds need a matrix or a file.
FIELDS = [*FORMULAS, "multi_attractor"]
# Decoder -> the observations that it is made for.
DECODERS = {"known": "linear", "linear": "linear", "loglinear": "loglinear", "mlp": "linear"}
FIELD_COLUMNS = {
    "affine": "affine_field",
    "teleport": "teleport_reference",
    "random": "field_nrmse.random",
    "binary": "field_nrmse.prbs",
    "planned": "field_nrmse.active",
    "coverage": "coverage_90.active",
    "ratio to random": "transition_ratio.random",
    "ratio to binary": "transition_ratio.prbs",
}
DECODER_COLUMNS = {
    "planned": "field_nrmse.active",
    "random": "field_nrmse.random",
    "share planned": "planned.active",
    "ratio to random": "transition_ratio.random",
}


def fields(root: Path, options: Options) -> Study:
    """Trains all arms on each field."""
    rows = {}
    train = {"transitions": options.transitions}
    for field in options.fields or FIELDS:
        section = {"seeds": options.replicates, "env": {"field": {"kind": field}}, "train": train}
        rows[field] = row_of(root, None, section)
    rules = rules_of(MODEL, "default")
    return Study(rows, FIELDS_FILE, partial(study.table, "field", FIELD_COLUMNS, rules))


def decoders(root: Path, options: Options) -> Study:
    """Trains the preset seq_vae with each decoder, on observations that it is made for."""
    rows = {}
    for name in options.decoders or DECODERS:
        env = {"observation": {"kind": DECODERS.get(name, "linear")}}
        section = {"seeds": options.replicates, "env": env, "network": {"decoder": name}}
        rows[name] = row_of(root, "seq_vae", section)
    return Study(rows, DECODERS_FILE, partial(study.table, "decoder", DECODER_COLUMNS, ()))


def row_of(root: Path, preset: str | None, section: dict[str, Any]) -> Row:
    trial = study.varied(root, MODEL, preset, section)
    config = trial.params.active_dynamics
    facts = {"replicates": config.seeds, "transitions": config.train.transitions}
    return Row([trial], facts)
