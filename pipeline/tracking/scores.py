"""an evaluation -> its part of a run: judged scores as metrics, all scores as a table, plots."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from pipeline.judging.render import markdown, summary
from pipeline.runtime.stage import Stage
from pipeline.tracking.description import description
from pipeline.tracking.origin import trial_context
from pipeline.tracking.records import padded
from pipeline.tracking.registry import SCORES, registered_name
from pipeline.tracking.run import Run
from quatrain.judgement import Judgement, Scores, interval_over_seeds

TABLE = "scores.csv"
INTERVAL_ENDS = ("_low", "_high")


def record_scores(stage: Stage, run: Run, judgement: Judgement) -> None:
    """Records what an evaluation wrote below reports/MODEL; describes the run by its judgement."""
    gated = gated_scores(judgement)
    run.metrics((f"eval/{name}", stage.config.train.steps, value) for name, value in gated)
    with TemporaryDirectory() as folder:
        path = Path(folder) / TABLE
        path.write_text(score_table(judgement.scores, dict(gated)))
        run.artifact(path, "evaluation")
    for plot in sorted((stage.reports / "plots").iterdir()):
        run.artifact(plot, "plots")
    run.artifact(stage.weights / "history.csv", "data")
    run.describe(description(stage.root, stage.params, stage.model, [judgement]))
    if trial_context() is None:
        name = registered_name(stage.model, stage.params.preset)
        title = f"{SCORES} (preset {judgement.preset})"
        section = "\n\n".join([title, summary([judgement]), markdown([judgement])])
        run.outbox.put("card", name, section)


def gated_scores(judgement: Judgement) -> list[tuple[str, float]]:
    """Returns the scores that have a rule; NaN where one was not finite."""
    lines = [line for line in judgement.lines if line.rule is not None]
    return [(line.metric, float("nan") if line.value is None else line.value) for line in lines]


def score_table(scores: Scores, gated: Mapping[str, float]) -> str:
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
