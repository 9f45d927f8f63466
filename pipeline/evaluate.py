"""data/MODEL, models/MODEL, baselines/MODEL.json -> reports/MODEL: scores, verdict and plots."""

import sys
import time

from pipeline.judging import verdicts
from pipeline.runtime import console
from pipeline.runtime.signals import Signals
from pipeline.runtime.stage import Stage, main
from pipeline.storage import artifacts, history
from pipeline.storage.figures import png, write_figures
from pipeline.storage.trained_model import load_trained
from pipeline.tracking.run import Run
from quatrain.registry import load


def evaluate(stage: Stage, signals: Signals) -> None:
    """Score, draw and judge what was trained; a broken baseline is a result, no failure (that is `pipeline.commands.gate`'s)."""
    began = time.monotonic()
    dataset, digest = stage.load_dataset()
    state, files = load_trained(stage.weights, stage.model, stage.config, dataset, digest)
    recorded = history.from_csv(files.contents["history.csv"])
    scores = load(stage.model).evaluate.evaluate(
        stage.config, state, dataset, stage.seed("evaluate")
    )
    signals.check()
    figures = load(stage.model).plots.plots(stage.config, state, dataset, recorded, scores)
    pictures = {f"{name}.png": png(figure) for name, figure in figures.items()}
    write_figures(stage.reports / "plots", pictures)
    with Run.of(stage, files.info["run_key"], stage.key([digest, files.digest]), digest) as run:
        step = stage.config.train.steps
        run.metrics([(f"eval/{name}", step, value) for name, value in scores.items()])
        run.metrics([("time/evaluate_seconds", step, time.monotonic() - began)])
        for name in pictures:
            run.artifact(stage.reports / "plots" / name, "plots")
        run.artifact(stage.weights / "history.csv", "data")
    artifacts.write_json(stage.reports / "scores.json", artifacts.null_if_not_finite(scores))
    verdict = verdicts.write(stage.root, stage.model, stage.params)
    print(verdicts.table([verdict]))
    if not verdict.verdict.passed:
        console.info(
            f"{stage.name}: the baseline is broken; `python -m pipeline.commands.gate` tells how, and ends with exit 4"
        )


if __name__ == "__main__":
    sys.exit(main("evaluate", __doc__ or "", evaluate))
