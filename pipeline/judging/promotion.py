"""scores -> the entry of their preset in baselines/MODEL.json, which nothing else writes."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import gate, render
from pipeline.judging.machine import machine_of
from pipeline.judging.scores import fresh_scores, repro_hint
from pipeline.runtime.console import redact
from pipeline.runtime.git import CODE, revision
from pipeline.storage.params_file import read_params
from quatrain.baselines import SCHEMA, Rule, entry_of
from quatrain.errors import QuatrainError
from quatrain.judgement import Judgement, Scores, fault_of_scores, judge
from quatrain.params import Params
from quatrain.storage.atomic_write import write_together
from quatrain.storage.folders import encode_file

AFTERWARDS = "it writes the report anew and moves the alias champion; then commit"


class PromotionRefused(QuatrainError):
    """Says why scores may not become a baseline, or only with a reason."""

    exit_code = 4


class Promotion(NamedTuple):
    """Holds the baseline that scores would make, and their judgements by the old one and by it."""

    baseline: dict[str, Any]
    before: Judgement
    after: Judgement

    @property
    def objections(self) -> list[str]:
        """Returns what is broken under the old baseline, or under goals and references."""
        model = self.before.model
        broken = [*self.before.broken, *self.after.broken]
        return [f"{model}: {line.why}" for line in broken if line.status != "no baseline"]


def promote(root: Path, work: Path, models: Sequence[str], preset: str, why: str | None) -> None:
    """Stores the scores of each model's last run under this preset as its baseline, of all of them
    or of none. Entries of other presets stay as they are, and nothing is run.

    root: the checkout, with params and baselines. work: the folder of the preset's results.

    Raises:
        PromotionRefused: a score is missing, or worse than the baseline, a goal or a reference
        without a reason.
        NotFresh: nothing was evaluated, or something else than is there now.
        DataError: a file cannot be read.
    """
    params = read_params(root, preset)
    promotions = [promotion(root, work, model, params, why) for model in models]
    print(render.text([change.before for change in promotions]))
    objections = dict.fromkeys(text for change in promotions for text in change.objections)
    if objections and why is None:
        command = gate.promote_hint(preset, *models, force=True)
        raise PromotionRefused(
            f"nothing is promoted: {'; '.join(objections)}",
            remedy=f"{command} stores it all the same",
        )
    files = {}
    for change in promotions:
        path = gate.baseline_path(root, change.before.model)
        files[path.name] = encode_file(path, change.baseline)[0]
    write_together(root / "baselines", files)
    for name, change in zip(files, promotions, strict=True):
        run = change.before.learner["run_key"][:12]
        count = len(change.after.lines)
        print(f"baselines/{name}: preset {preset} now holds the {count} scores of run {run}")
    print(f"{repro_hint(preset)}: {AFTERWARDS}", flush=True)


def promotion(root: Path, work: Path, model: str, params: Params, why: str | None) -> Promotion:
    """Returns the baseline that a model's last run would make.

    Raises:
        PromotionRefused, NotFresh, DataError: as `promote`.
    """
    config = getattr(params, model)
    fresh = fresh_scores(work, model, params)
    rules = gate.rules_of(model, params.preset, config)
    check_complete(model, fresh.scores, rules)
    before = gate.judge_scores(root, model, params, fresh.scores)._replace(learner=fresh.info)
    provenance = {
        "run_key": fresh.info["run_key"],
        "commit": revision(root, CODE),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **machine_of(fresh.info["settings"]),
        "seeds": config.seeds,
        "why": why and redact(why),
    }
    metrics = {rule.metric: entry_of(rule, fresh.scores) for rule in rules}
    old = gate.read_baseline(root, model) or {"schema": SCHEMA, "model": model, "presets": {}}
    entries = old["presets"] | {params.preset: {"metrics": metrics, "provenance": provenance}}
    baseline = old | {"presets": entries}
    return Promotion(baseline, before, judge(fresh.scores, baseline, rules, params.preset))


def check_complete(model: str, scores: Scores, rules: Sequence[Rule]) -> None:
    """Raises PromotionRefused unless each metric and reference that the model is judged by has a
    finite score, and no broken interval.
    """
    needed = {
        name
        for rule in rules
        for name in (rule.metric, *rule.lower_references, *rule.upper_references)
    }
    missing = sorted(name for name in needed if scores.get(name) is None)
    if missing:
        raise PromotionRefused(
            f"{model} is not promoted: "
            f"no finite score for {', '.join(missing)}; a baseline needs one"
        )
    for rule in rules:
        fault = fault_of_scores(rule.metric, scores)
        if fault is not None:
            raise PromotionRefused(
                f"{model} is not promoted: {rule.metric} has no interval: {fault}; "
                "mend it in the model's evaluate.py"
            )
