"""scores -> the entry of their preset in baselines/MODEL.json, which nothing else writes."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import gate, render
from pipeline.judging.baseline_files import baseline_path, damaged, read_baseline
from pipeline.judging.changes import provenance_of
from pipeline.judging.drift import recording_part
from pipeline.judging.scores import fresh_scores
from pipeline.runtime.console import redact
from pipeline.runtime.errors import BaselineBroken
from pipeline.runtime.git import git, user
from pipeline.runtime.hints import promote_hint, repro_hint
from quatrain.baselines import SCHEMA, BaselineError, Rule, entry_of, preset_of, succeed
from quatrain.judgement import Judgement, Scores, judge
from quatrain.params import Params
from quatrain.storage.atomic_write import write_together
from quatrain.storage.folders import encode_file

AFTERWARDS = "it writes the report anew and moves the alias champion; then commit"


class Promotion(NamedTuple):
    """Holds the baseline that scores would make, and their judgements by the old one and by it."""

    baseline: dict[str, Any]
    before: Judgement
    after: Judgement


def promote(root: Path, work: Path, models: Sequence[str], params: Params, why: str | None) -> None:
    """Stores the scores of each model's last run under this preset as its baseline, of all of them
    or of none. Entries of other presets stay as they are, and nothing is run.

    root: the checkout, with the baselines. work: the folder of the preset's results. params: those
    of the preset.

    Raises:
        BaselineBroken: a score is unusable, or worse than the baseline, a goal or a reference
        without a reason.
        NotFresh: nothing was evaluated, or something else than is there now.
        DataError: a file cannot be read.
    """
    promotions = [promotion(root, work, model, params, why) for model in models]
    print(render.text([change.before for change in promotions]))
    objections = dict.fromkeys(
        f"{before.model}: {line.why}"
        for _, before, after in promotions
        for line in (*before.broken, *after.broken)
        if line.status != "no baseline"
    )
    if objections and why is None:
        command = promote_hint(params.preset, *models, force=True)
        raise BaselineBroken(
            f"nothing is promoted: {'; '.join(objections)}",
            remedy=f"{command} stores it all the same",
        )
    files = {}
    for change in promotions:
        path = baseline_path(root, change.before.model)
        files[path.name] = encode_file(path, change.baseline)[0]
    write_together(root / "baselines", files)
    for name, change in zip(files, promotions, strict=True):
        run = change.before.learner["run_key"][:12]
        count = len(change.after.lines)
        print(f"baselines/{name}: preset {params.preset} now holds the {count} scores of run {run}")
    print(f"{repro_hint(params.preset, *models)}: {AFTERWARDS}", flush=True)


def promotion(root: Path, work: Path, model: str, params: Params, why: str | None) -> Promotion:
    """Returns the baseline that a model's last run would make.

    Raises:
        BaselineBroken: a score or a reference is not finite, or an interval is none.
        NotFresh, DataError: as `promote`.
    """
    preset, config = params.preset, getattr(params, model)
    scores, info = fresh_scores(work, model, params)
    before = gate.judge_scores(root, model, params, scores)._replace(learner=info)
    unusable = [line.why for line in before.broken if line.status in gate.UNUSABLE]
    if unusable:
        reason = f"{model} is not promoted: {'; '.join(unusable)}"
        raise BaselineBroken(reason, remedy="a baseline needs finite scores, even by force")
    provenance = provenance_of(work, model, params, info)
    provenance |= recording_part(work, model, config) or _recording_before(before, provenance)
    rules = gate.rules_of(model, preset, config)
    baseline = with_entry(root, model, preset, rules, scores, provenance, why)
    return Promotion(baseline, before, judge(scores, baseline, rules, preset))


def _recording_before(before: Judgement, provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the old baseline has of the recording, if it is of the same data: these need not
    be here.
    """
    old = before.provenance
    is_same = "recording" in old and old.get("data") == provenance["data"]
    return {"recording": old["recording"]} if is_same else {}


def with_entry(
    root: Path,
    model: str,
    preset: str,
    rules: Sequence[Rule],
    scores: Scores,
    provenance: Mapping[str, Any],
    why: str | None,
) -> dict[str, Any]:
    """Returns the baseline file of a model with another entry for a preset: these scores, of a run
    with this provenance. The entry that it replaces becomes part of its history.

    Raises:
        DataError: the file cannot be read.
    """
    old = read_baseline(root, model) or {"schema": SCHEMA, "model": model, "presets": {}}
    metrics = {rule.metric: entry_of(rule, scores) for rule in rules}
    by = git(root, "config", "user.name") or user()
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    stored = dict(provenance) | {"date": date, "by": by, "why": why and redact(why)}
    try:
        entry = succeed(preset_of(old, preset), metrics, stored)
    except BaselineError as error:
        raise damaged(model, f"baselines/{model}.json: {error}") from None
    return old | {"presets": old["presets"] | {preset: entry}}
