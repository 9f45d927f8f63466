"""data/MODEL, models/MODEL, baselines/MODEL.json -> reports/MODEL: scores, verdict and plots."""

import sys
import time

from pipeline.judging import verdicts
from pipeline.runtime import console
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage, main
from pipeline.storage import artifacts
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.trained_model import load_trained
from pipeline.tracking.run import Run
from quatrain.storage import history


def evaluate(stage: Stage, signals: Signals) -> None:
    """Scores, plots and judges what was trained.

    A broken baseline is a result, not a failure; `pipeline.commands.gate` fails on it.
    """
    started = time.monotonic()
    dataset, digest = stage.load_dataset()
    state, files = load_trained(stage.weights, stage.model, stage.config, dataset, digest)
    curves = history.from_csv(files.contents["history.csv"])
    evaluate_model = stage.modules.evaluate.evaluate
    scores = evaluate_model(stage.config, state, dataset, stage.seed("evaluate"))
    signals.check()
    figures = stage.modules.plots.plots(stage.config, state, dataset, curves, scores)
    images = encode(figures)
    write_figures(stage.reports / "plots", images)
    key = stage.key([digest, files.digest])
    with Run.of_stage(stage, files.info["run_key"], key, digest) as run:
        step = stage.config.train.steps
        run.metrics([(f"eval/{name}", step, value) for name, value in scores.items()])
        run.metrics([("time/evaluate_seconds", step, time.monotonic() - started)])
        for name in images:
            run.artifact(stage.reports / "plots" / name, "plots")
        run.artifact(stage.weights / "history.csv", "data")
    artifacts.write_json(stage.reports / "scores.json", artifacts.null_if_not_finite(scores))
    result = verdicts.write(stage.root, stage.model, stage.params)
    print(verdicts.table([result]))
    if result.only_lacks_a_baseline:
        remedy = verdicts.promote_hint(stage.model, stage.params.preset)
        console.info(f"{stage.name}: no baseline yet: {remedy}")
    elif not result.verdict.passed:
        remedy = "`python -m pipeline.commands.gate` tells how, and ends with exit 4"
        console.info(f"{stage.name}: the baseline is broken; {remedy}")


if __name__ == "__main__":
    sys.exit(main("evaluate", __doc__ or "", evaluate))
