"""data/MODEL, models/MODEL, baselines/MODEL.json -> reports/MODEL: scores, verdict and plots."""

import csv
import io
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import verdicts
from pipeline.runtime.stage import Signals, Stage, main, say
from pipeline.storage import artifacts, atomic_write
from pipeline.storage.artifacts import ArtifactError
from pipeline.tracking.run import Run
from quatrain.progress import History, history
from quatrain.registry import load


def evaluate(stage: Stage, signals: Signals) -> None:
    """Score, draw and judge what was trained; a broken baseline is a result, no failure (that is `pipeline.commands.gate`'s)."""
    began = time.monotonic()
    dataset, digest = stage.load_dataset()
    state, files = load_learner(stage, dataset, digest)
    recorded = parse_history(files.contents["history.csv"])
    scores = load(stage.model).evaluate.evaluate(
        stage.config, state, dataset, stage.seed("evaluate")
    )
    signals.check()
    figures = load(stage.model).plots.plots(stage.config, state, dataset, recorded, scores)
    pictures = {f"{name}.png": png(figure) for name, figure in figures.items()}
    write_pictures(stage.reports / "plots", pictures)
    with Run.of(stage, files.info["run_key"], stage.key([digest, files.digest]), digest) as run:
        step = stage.config.train.steps
        run.metrics([(f"eval/{name}", step, value) for name, value in scores.items()])
        run.metrics([("time/evaluate_seconds", step, time.monotonic() - began)])
        for name in pictures:
            run.artifact(stage.reports / "plots" / name, "plots")
        run.artifact(stage.weights / "history.csv", "data")
    artifacts.write_json(stage.reports / "scores.json", storable(scores))
    verdict = verdicts.write(stage.root, stage.model, stage.params)
    print(verdicts.table([verdict]))
    if not verdict.verdict.passed:
        say(
            f"{stage.name}: the baseline is broken; `python -m pipeline.commands.gate` tells how, and ends with exit 4"
        )


class Trained(NamedTuple):
    """A learner, and the verified files that it came in."""

    state: Any
    files: artifacts.Loaded


def load_learner(stage: Stage, dataset: Any, digest: str) -> Trained:
    """What was trained on the dataset with this digest.

    Raises:
        ArtifactError: the files are damaged, or belong to another config or dataset.
    """
    files = artifacts.load(stage.weights)
    arrays = files.contents["weights.safetensors"] | files.contents["state.safetensors"]
    try:
        if files.info.get("dataset") != digest:
            raise ValueError(f"was trained on another dataset than data/{stage.model} holds")
        return Trained(load(stage.model).train.from_arrays(stage.config, dataset, arrays), files)
    except ValueError as error:
        raise ArtifactError(
            f"models/{stage.model}: {error}; run `dvc repro train@{stage.model}`"
        ) from None


def parse_history(text: str) -> History:
    """Metric -> its steps and values, from history.csv, whose first column is the step."""
    head, *lines = csv.reader(io.StringIO(text))
    cells = [
        (name, line[0], cell)
        for line in lines
        for name, cell in zip(head[1:], line[1:], strict=True)
        if cell
    ]
    return history((name, int(step), float(value)) for name, step, value in cells)


def storable(scores: dict[str, float]) -> dict[str, float | None]:
    """JSON knows no NaN: null, which the verdict calls not finite."""
    return {name: value if math.isfinite(value) else None for name, value in sorted(scores.items())}


def write_pictures(folder: Path, pictures: dict[str, bytes]) -> None:
    """The folder holds exactly these pictures; DVC shows every file in it, so it has no manifest."""
    for old in set(folder.glob("*")) - {folder / name for name in pictures}:
        old.unlink()
    for name, picture in pictures.items():
        atomic_write.write_durably(folder / name, picture)


def png(figure: Any) -> bytes:
    """The picture, without the date and version that matplotlib would write into it."""
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None}, bbox_inches="tight")
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main("evaluate", __doc__ or "", evaluate))
