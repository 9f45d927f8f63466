"""an evaluation -> its part of a run: judged scores as metrics, all scores as a file, plots."""

import math

from pipeline.judging.changes import provenance_of
from pipeline.judging.drift import recording_part
from pipeline.judging.render import scores_table
from pipeline.judging.scores import FreshScores
from pipeline.runtime.stage import Stage
from pipeline.tracking.export import model_card
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import Run, in_trial
from quatrain.storage.formats import to_json


def record_scores(stage: Stage, run: Run, fresh: FreshScores) -> None:
    """Records what an evaluation wrote below reports/MODEL, and describes the run by it.

    A score that is not finite is NaN. Of scores and provenance a rollback makes a baseline.
    """
    scores = fresh.scores
    gated = [rule.metric for rule in stage.modules.rules.gated(stage.config)]
    numbers = ((name, scores.get(name)) for name in gated)
    run.metrics(
        (f"eval/{name}", stage.config.train.steps, math.nan if number is None else number)
        for name, number in numbers
    )
    provenance = provenance_of(stage.root, stage.model, stage.params, fresh.info)
    provenance |= recording_part(stage.root, stage.model, stage.config)
    for name, content in {"scores": scores, "provenance": provenance}.items():
        run.put("artifact", f"evaluation/{name}.json", data=to_json(content))
    for plot in sorted((stage.reports / "plots").iterdir()):
        run.artifact(plot, "plots")
    run.artifact(stage.weights / "history.csv", "data")
    table = scores_table(scores, gated)
    if not in_trial():
        name = registered_name(stage.model, stage.params.preset)
        run.put("card", name, model_card(stage, table))
    run.describe(table)
