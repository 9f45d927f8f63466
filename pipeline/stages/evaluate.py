"""data/MODEL, models/MODEL, baselines/MODEL.json -> reports/MODEL: scores, verdict and plots."""

import math
from collections.abc import Mapping

from pipeline.judging import tables, verdicts
from pipeline.runtime import console
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage import artifacts
from pipeline.storage.curves import write_curves
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.trained_model import load_trained
from pipeline.tracking.records import now
from pipeline.tracking.run import Run
from pipeline.tracking.scores import record_scores
from quatrain.storage import history


def evaluate(stage: Stage, signals: Signals) -> None:
    """Scores, plots and judges what was trained.

    A broken baseline is a result, not a failure; the gate fails on it.
    """
    started = now()
    dataset, digest = stage.load_dataset()
    state, files = load_trained(stage.weights, stage.model, stage.params, dataset, digest)
    curves = history.from_csv(files.contents["history.csv"])
    evaluate_model = stage.modules.evaluate.evaluate
    scores = evaluate_model(stage.config, state, dataset, stage.seed("evaluate"))
    signals.check()
    figures = stage.modules.plots.plots(stage.config, state, dataset, curves, scores)
    images = encode(figures)
    write_figures(stage.reports / "plots", images)
    write_curves(stage.reports / "curves", curves)
    artifacts.write_json(stage.reports / "scores.json", artifacts.null_if_not_finite(scores))
    write_metrics(stage, scores)
    result = judge(stage)
    key = stage.key([digest, files.digest])
    with Run.of_stage(stage, files.info["run_key"], key, digest, started=started) as run:
        step = stage.config.train.steps
        run.metrics([("time/evaluate_seconds", step, (now() - started) / 1000)])
        record_scores(stage, run, result)
    verdicts.write(stage.root, stage.model, stage.params)  # last: it vouches for all of the above
    print(tables.table([result]))
    if result.only_lacks_a_baseline:
        remedy = verdicts.promote_hint(stage.model, stage.params.preset)
        console.info(f"{stage.name}: no baseline yet: {remedy}")
    elif not result.verdict.passed:
        remedy = "`make gate` tells how, and ends with exit 4"
        console.info(f"{stage.name}: the baseline is broken; {remedy}")


def judge(stage: Stage) -> verdicts.ModelVerdict:
    preset = stage.params.preset
    rules = verdicts.rules_of(stage.model, preset, stage.config)
    paths = verdicts.files(stage.root, stage.model)
    return verdicts.judge_files(paths, stage.model, preset, rules)


def write_metrics(stage: Stage, scores: Mapping[str, float]) -> None:
    """Writes the judged scores, named by the model, because DVC shows those of all in one table."""
    gated = [rule.metric for rule in stage.modules.rules.GATED]
    judged_scores = {name: scores.get(name, math.nan) for name in gated}
    metrics = {stage.model: artifacts.null_if_not_finite(judged_scores)}
    artifacts.write_json(stage.reports / "metrics.json", metrics)
