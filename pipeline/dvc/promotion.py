"""current scores -> baselines/MODEL.json: the only writer of baselines."""

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.dvc.repro import CODE
from pipeline.dvc.workspace import workspace_of
from pipeline.judging import tables, verdicts
from pipeline.judging.machine import machine_of
from pipeline.runtime.git import revision
from pipeline.runtime.redaction import redact
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from quatrain.baselines import SCHEMA, Rule, entry_of
from quatrain.errors import QuatrainError
from quatrain.judgement import PASSED, fault_of_scores, judge


class PromotionRefused(QuatrainError):
    """Says why scores may not become a baseline, or only with a reason."""

    exit_code = 4


class Promotion(NamedTuple):
    path: Path
    baseline: dict[str, Any]
    result: verdicts.ModelVerdict
    rules: tuple[Rule, ...]
    run_key: str

    @property
    def summary(self) -> str:
        return (
            f"baselines/{self.path.name}: "
            f"preset {self.result.preset} now holds the "
            f"{len(self.result.verdict.lines)} scores of run {self.run_key[:12]}"
            "; commit it"
        )


def promote(root: Path, models: Sequence[str], preset: str, why: str | None) -> None:
    """Stores the scores of each model's last run under this preset as its baseline, of all of them
    or of none.

    Raises:
        PromotionRefused: a score is missing, or worse than the baseline, a goal or a reference
        without a reason.
        StaleVerdict: nothing was evaluated, or scores or learner changed after the verdict.
        DataError: a file cannot be read.
    """
    promotions = [promotion(root, model, preset, why) for model in models]
    print(tables.comparison_table([change.result for change in promotions]))
    objections = [text for change in promotions for text in objections_to(change)]
    if objections and why is None:
        raise PromotionRefused(
            f"nothing is promoted: {'; '.join(objections)}; "
            "--force --why '...' stores it all the same"
        )
    for change in promotions:
        artifacts.write_json(change.path, change.baseline)
        print(change.summary, flush=True)


def promotion(root: Path, model: str, preset: str, why: str | None) -> Promotion:
    """Returns the baseline that a model's last run would make.

    Raises:
        PromotionRefused, StaleVerdict, DataError: as `promote`.
    """
    work = workspace_of(root, preset)
    # Refuses scores that belong to other weights or params.
    params = read_params(root, preset)
    verdicts.stored_verdict(work, model, preset, params)
    rules = verdicts.rules_of(model, preset, getattr(params, model))
    baseline_path = verdicts.files(root, model).baseline
    result = verdicts.judge_files(
        verdicts.files(work, model)._replace(baseline=baseline_path), model, preset, rules
    )
    check_complete(model, result.scores, rules)
    empty: dict[str, Any] = {"schema": SCHEMA, "model": model, "presets": {}}
    baseline = verdicts.read_baseline(baseline_path, model) or empty
    origin = provenance(root, work, model, preset, why)
    scores: Any = result.scores
    metrics = {rule.metric: entry_of(rule, scores) for rule in rules}
    baseline = baseline | {
        "presets": baseline["presets"] | {preset: {"metrics": metrics, "provenance": origin}}
    }
    return Promotion(baseline_path, baseline, result, rules, origin["run_key"])


def check_complete(model: str, scores: Mapping[str, float | None], rules: Sequence[Rule]) -> None:
    """Raises PromotionRefused unless each metric and reference that the model is judged by has a
    finite score, and no broken interval.
    """
    needed: set[str] = set()
    for rule in rules:
        needed |= {rule.metric, *rule.lower_references, *rule.upper_references}
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


def objections_to(change: Promotion) -> list[str]:
    """Returns what is broken under the old baseline, or under the goals and references of the new
    one.
    """
    model = change.result.model
    preset = change.result.preset
    verdict = judge(change.result.scores, change.baseline, change.rules, preset)
    lines = (*change.result.verdict.lines, *verdict.lines)
    allowed = (*PASSED, "no baseline")
    return list(
        dict.fromkeys(f"{model}: {line.why}" for line in lines if line.status not in allowed)
    )


def provenance(root: Path, work: Path, model: str, preset: str, why: str | None) -> dict[str, Any]:
    """Returns the run of the scores, date, code and machine, and the reason if they were worse."""
    info = artifacts.load(work / "models" / model).info
    return {
        "run_key": info["run_key"],
        "commit": revision(root, CODE),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        **machine_of(info["settings"]),
        "seeds": getattr(read_params(root, preset), model).seeds,
        "why": why and redact(why),
    }
