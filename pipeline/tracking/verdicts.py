"""judgements -> tags of the runs and versions that they judge: the verdict where people look."""

import json
from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import render
from pipeline.tracking.origin import DESCRIPTION_TAG, pipeline_run
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import SCORE_TAG, VERDICT_TAG
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import evaluations_of, path_of
from quatrain.judgement import Judgement
from quatrain.params import Params

NAME_TAG = "mlflow.runName"


def record_verdicts(work: Path, judgements: Sequence[Judgement]) -> list[Outbox]:
    """Records verdict and headline score of each model in the run of its evaluation and its
    registered version; returns the outboxes that are to be delivered.

    A run that another checkout made is left alone.
    """
    changed = []
    for judgement in judgements:
        outbox = _outbox_of(work, judgement)
        if outbox is not None and _record(work, outbox, judgement):
            changed.append(outbox)
    return changed


def _outbox_of(work: Path, judgement: Judgement) -> Outbox | None:
    if not judgement.learner:
        return None
    evaluations = evaluations_of(work, judgement.model, judgement.learner["run_key"])
    return max(evaluations, key=lambda outbox: outbox.last_time, default=None)


def _record(work: Path, outbox: Outbox, judgement: Judgement) -> bool:
    """Returns whether something is recorded that was not."""
    before = outbox.last_time
    training = path_of(work, f"train@{judgement.model}", judgement.learner["run_key"])
    header = (Outbox(training) if training.is_file() else outbox).header
    short = {VERDICT_TAG: judgement.verdict, SCORE_TAG: headline(judgement)}
    outbox.put("version", registered_name(judgement.model, judgement.preset), json.dumps(short))
    name = "" if header is None else header.run_name
    for tag, text in {**short, **tags_of(name, [judgement])}.items():
        outbox.put("tag", tag, text)
    return outbox.last_time != before


def pipeline_name(work: Path, params: Params, judgements: Sequence[Judgement]) -> str | None:
    """Returns the name that the run of the pipeline got from the first evaluation below it; None if
    none ran here.
    """
    parent = pipeline_run(work, params).run_key
    outboxes = [outbox for each in judgements if (outbox := _outbox_of(work, each))]
    headers = [outbox.header for outbox in sorted(outboxes, key=lambda each: each.begun_at)]
    above = [header.parent for header in headers if header is not None and header.parent]
    return next((each.run_name for each in above if each.run_key == parent), None)


def tags_of_all(name: str, judgements: Sequence[Judgement]) -> dict[str, str]:
    """Returns the tags of the run of a pipeline: the worst verdict, and each model's score."""
    scores = ", ".join(f"{each.model} {headline(each)}" for each in judgements)
    verdict = render.verdict_of_all(judgements)
    return {VERDICT_TAG: verdict, SCORE_TAG: scores, **tags_of(name, judgements)}


def tags_of(name: str, judgements: Sequence[Judgement]) -> dict[str, str]:
    """Returns name and description of a run: its name says what is wrong, for MLflow shows every
    run that ended as a success. The description has scores and changes since the baselines.
    """
    verdict = render.verdict_of_all(judgements)
    parts = [
        render.summary(judgements),
        render.markdown(judgements),
        render.changes_of_all(judgements),
    ]
    return {
        NAME_TAG: name if verdict == "passed" else f"{verdict}: {name}",
        DESCRIPTION_TAG: "\n\n".join(filter(None, parts)),
    }


def headline(judgement: Judgement) -> str:
    """Returns the first score that is judged, `cosine_mean 0.9993`, or why there is none."""
    line = judgement.lines[0]
    return line.status if line.value is None else f"{line.metric} {render.number(line.value)}"
