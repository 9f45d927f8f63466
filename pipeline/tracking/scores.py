"""an evaluation -> its part of a run: judged scores as metrics, all scores as a file, plots."""

import math

from pipeline.judging.render import scores_table
from pipeline.runtime.stage import Stage
from pipeline.tracking.export import model_card
from pipeline.tracking.origin import changes
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import Run, in_trial
from quatrain.judgement import Scores
from quatrain.storage.formats import to_json

JUDGED_BY = (
    "`make gate` compares these scores with the baseline; "
    "the report's run, above those of the models, has the verdict."
)


def record_scores(stage: Stage, run: Run, scores: Scores) -> None:
    """Records what an evaluation wrote below reports/MODEL, and describes the run by it.

    A score that is not finite is NaN.
    """
    gated = [rule.metric for rule in stage.modules.rules.gated(stage.config)]
    numbers = ((name, scores.get(name)) for name in gated)
    run.metrics(
        (f"eval/{name}", stage.config.train.steps, math.nan if number is None else number)
        for name, number in numbers
    )
    run.put("artifact", "evaluation/scores.json", data=to_json(scores))
    for plot in sorted((stage.reports / "plots").iterdir()):
        run.artifact(plot, "plots")
    run.artifact(stage.weights / "history.csv", "data")
    table = scores_table(scores, gated)
    preset = stage.params.preset
    parts = [table, changes(stage.root, preset, stage.model)]
    if not in_trial():
        parts.insert(1, JUDGED_BY)
        run.put("card", registered_name(stage.model, preset), model_card(stage, table))
    run.describe("\n\n".join(parts))
