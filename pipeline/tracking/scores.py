"""an evaluation -> its part of a run: judged scores as metrics, all scores as a file, plots."""

import math
from collections.abc import Mapping
from typing import Any

from pipeline.judging.changes import provenance_of
from pipeline.judging.render import scores_table
from pipeline.runtime.stage import Stage
from pipeline.tracking.export import model_card
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import Run, in_trial
from quatrain.judgement import Scores
from quatrain.storage.formats import to_json


def record_scores(stage: Stage, run: Run, scores: Scores, info: Mapping[str, Any]) -> None:
    """Records what an evaluation wrote below reports/MODEL, and describes the run by it.

    A score that is not finite is NaN. info: as `FreshScores`, of which a rollback makes a baseline.
    """
    gated = [rule.metric for rule in stage.modules.rules.gated(stage.config)]
    numbers = ((name, scores.get(name)) for name in gated)
    run.metrics(
        (f"eval/{name}", stage.config.train.steps, math.nan if number is None else number)
        for name, number in numbers
    )
    provenance = provenance_of(stage.root, stage.model, stage.params, info)
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
