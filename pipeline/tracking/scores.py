"""an evaluation -> its part of a run: judged scores as metrics, all scores as a table, plots."""

import csv
import io
import math
from collections.abc import Collection

from pipeline.judging.render import scores_table
from pipeline.runtime.stage import Stage
from pipeline.tracking.export import model_card
from pipeline.tracking.origin import changes, trial_context
from pipeline.tracking.records import padded
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import Run
from quatrain.judgement import Scores, interval_over_seeds

TABLE = "evaluation/scores.csv"
JUDGED_BY = (
    "`make gate` compares these scores with the baseline; "
    "the report's run, above those of the models, has the verdict."
)
INTERVAL_ENDS = ("_low", "_high")


def record_scores(stage: Stage, run: Run, scores: Scores) -> None:
    """Records what an evaluation wrote below reports/MODEL, and describes the run by it."""
    gated = [rule.metric for rule in stage.modules.rules.GATED]
    step = stage.config.train.steps
    run.metrics((f"eval/{name}", step, number_of(scores.get(name))) for name in gated)
    run.outbox.put("artifact", TABLE, data=score_table(scores, gated).encode())
    for plot in sorted((stage.reports / "plots").iterdir()):
        run.artifact(plot, "plots")
    run.artifact(stage.weights / "history.csv", "data")
    table = scores_table(scores, gated)
    preset = stage.params.preset
    run.describe(f"{table}\n\n{JUDGED_BY}\n\n{changes(stage.root, preset, stage.model)}")
    if trial_context() is None:
        run.outbox.put("card", registered_name(stage.model, preset), model_card(stage, table))


def number_of(score: float | None) -> float:
    """Returns a score; NaN where it was not finite."""
    return math.nan if score is None else score


def score_table(scores: Scores, gated: Collection[str]) -> str:
    """Returns CSV of all scores with their intervals, judged ones first; the UI shows a table."""
    ends = {f"{name}{end}" for name in scores for end in INTERVAL_ENDS}
    names = sorted(scores.keys() - ends, key=lambda name: (name not in gated, padded(name)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["score", "value", "low", "high", "judged"])
    for name in names:
        interval = map(shown, interval_over_seeds(name, scores) or (None, None))
        row = [padded(name), shown(scores[name]), *interval]
        writer.writerow([*row, "yes" if name in gated else "no"])
    return text.getvalue()


def shown(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
