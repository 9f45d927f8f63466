"""data/MODEL, models/MODEL -> reports/MODEL: plots, curves and scores."""

from collections.abc import Iterable, Mapping

from pipeline.judging import render
from pipeline.judging.scores import digests_of, stored_scores, with_info, write_scores
from pipeline.runtime.processes import Signals
from pipeline.runtime.stage import Stage
from pipeline.storage.curves import write_curves
from pipeline.storage.figures import encode, write_figures
from pipeline.storage.trained_model import load_trained
from pipeline.tracking.run import Run
from pipeline.tracking.scores import record_scores
from quatrain.storage import folders, formats, history


def evaluate(stage: Stage, signals: Signals) -> str:
    """Scores and plots what was trained; returns the first judged score. `make gate` judges all."""
    dataset, digest = stage.load_dataset()
    state, files = load_trained(stage.weights, stage.model, stage.params, dataset, digest)
    digests = digests_of(stage.root, stage.model, stage.params, learner=files.digest, data=digest)
    curves = history.from_csv(files.contents["history.csv"])
    evaluate_model = stage.modules.evaluate.evaluate
    evaluation = evaluate_model(stage.config, state, dataset, stage.seed("evaluate"))
    signals.check()
    figures = stage.modules.plots.plots(stage.config, state, dataset, curves, evaluation)
    images = encode(figures)
    write_figures(stage.reports / "plots", images)
    write_curves(stage.reports / "curves", curves)
    numbers = formats.null_if_not_finite(evaluation.scores)
    gated = [rule.metric for rule in stage.modules.rules.gated(stage.config)]
    # By model, because DVC shows those of all in one table.
    folders.write_json(
        stage.reports / "metrics.json", {stage.model: with_intervals(numbers, gated)}
    )
    stored = stored_scores(stage.model, stage.params.preset, digests, files.info, numbers)
    key = stage.key([digest, files.digest])
    with Run.of_stage(stage, files.info["run_key"], key, digest) as run:
        record_scores(stage, run, with_info(stored))
    # Last: it vouches for all of the above.
    write_scores(stage.root, stored)
    return f"{gated[0]} {render.score(numbers, gated[0])}"


def with_intervals(
    scores: Mapping[str, float | None], gated: Iterable[str]
) -> dict[str, float | None]:
    """Returns the gated scores, and the ends of their intervals over seeds where there are such."""
    names = [f"{name}{end}" for name in gated for end in ("", "_low", "_high")]
    return {name: scores[name] for name in names if name in scores}
