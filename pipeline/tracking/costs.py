"""what stages took -> metrics of a run, and a table of all models."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.judging.render import markdown_table
from pipeline.runtime.costs import stored
from pipeline.runtime.stage import Stage
from pipeline.tracking.records import Row
from quatrain.params import Params
from quatrain.registry import MODELS

VERBS = ("collect", "train", "evaluate")
RESTORED = "No stage ran here: DVC restored the results of another run."
# Column of the table -> sum or peak, how it is written.
COLUMNS = {
    "seconds": ("seconds", ".1f"),
    "compiling": ("compile_seconds", ".1f"),
    "CPU seconds": ("cpu_seconds", ".1f"),
    "memory (MB)": ("memory_megabytes", ",.0f"),
    "GPU memory (MB)": ("gpu_memory_megabytes", ",.0f"),
    "energy (J)": ("energy_joules", ",.0f"),
}


def cost_rows(stage: Stage, costs: Mapping[str, float]) -> Iterator[Row]:
    """Yields the metrics of a stage; those of a training hold what its dataset took, too."""
    parts = {stage.verb: costs}
    if stage.verb == "train":
        parts["collect"] = costs_of(stage._replace(verb="collect"))
    for verb, values in parts.items():
        for name, value in values.items():
            yield metric(verb, name), stage.config.train.steps, value


def metric(verb: str, name: str) -> str:
    """Returns the name of a cost in MLflow: seconds are among the times."""
    if name == "compile_seconds":
        return f"time/{name}"
    return f"{'time' if name == 'seconds' else 'usage'}/{verb}_{name}"


def costs_of(stage: Stage) -> dict[str, float]:
    """Returns what a stage took here with these params and this code; nothing if it did not run."""
    kept = stored(stage.costs)
    return dict(kept["costs"]) if kept.get("is_done") else {}


def table(root: Path, params: Params) -> str:
    """Returns what each stage took here, in Markdown; those that DVC restored took nothing."""
    stages = [Stage(verb, model, root, params) for model in MODELS for verb in VERBS]
    costs = {stage.name: spent for stage in stages if (spent := costs_of(stage))}
    columns = {
        title: column
        for title, column in COLUMNS.items()
        if any(column[0] in spent for spent in costs.values())
    }
    rows = [
        [
            name,
            *(format(spent[key], form) if key in spent else "-" for key, form in columns.values()),
        ]
        for name, spent in costs.items()
    ]
    return markdown_table(("stage", *columns), rows) if rows else RESTORED
