"""two sides, seeds -> their trainings, batch by batch until it is decided, a page and a verdict.

Killed at any moment, the same command continues: what was trained is found by its key.
"""

from collections.abc import Iterator
from pathlib import Path

from pipeline.runtime import console
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import folder_lock
from pipeline.tracking.origin import DESCRIPTION_TAG
from pipeline.tracking.records import VERDICT_TAG
from pipeline.trials import compare_page, engine
from pipeline.trials.engine import Place
from pipeline.trials.group import Group
from pipeline.trials.sides import Request
from pipeline.trials.trial import Outcome, Trial, folder_of
from quatrain.comparison import Comparison, Run
from quatrain.errors import ConfigError
from quatrain.registry import load
from quatrain.storage import folders, history

COMPARE_TAG = "quatrain.compare"
UNWANTED = 4


def run(root: Path, request: Request, place: Place) -> int:
    """Compares two sides, or continues that; returns the exit code.

    Raises:
        CommandFailed: a training failed, or the cluster or the storage does.
        ConfigError: the scores of a side have no such metric.
        LockHeld: another comparison of this name runs in this checkout.
        Interrupted: a signal was received; the same command continues.
    """
    first = [trial.key for trial in request.pair(root, 0)]
    key = folders.digest_of(
        [request.name, request.metric, request.margin, request.looks, request.is_paired, first]
    )
    params = {"change": request.change, "metric": request.metric, "margin": f"{request.margin:g}"}
    with (
        folder_lock(root / ".state" / "compare" / request.name, patience_seconds=0),
        place,
        Group(root, f"compare-{request.name}", key, params, {COMPARE_TAG: "true"}) as group,
    ):
        for comparison in batches(root, request, place, group):
            last = comparison.differences[comparison.metric]
            ends = {"low": last.low, "mean": last.mean, "high": last.high}
            group.metrics([(f"difference/{e}", comparison.seeds, v) for e, v in ends.items()])
            console.info(comparison.sentence)
        group.files += compare_page.write(root, request, comparison)
        # MLflow writes the lines of a long heading over each other.
        text = compare_page.markdown(root, request, comparison).removeprefix("# ")
        group.conclude({VERDICT_TAG: comparison.verdict, DESCRIPTION_TAG: text})
    print(compare_page.text(comparison))
    print(f"\npage     {group.files[0].relative_to(root)}", flush=True)
    return UNWANTED if comparison.verdict in request.fail_if else 0


def batches(root: Path, request: Request, place: Place, group: Group) -> Iterator[Comparison]:
    """Yields what is known after each batch of seeds, until it is decided."""
    before: list[Run] = []
    after: list[Run] = []
    for look in request.looks:
        pairs = [request.pair(root, number) for number in range(len(before), look)]
        trials = [trial for pair in pairs for trial in pair]
        labels = [
            f"{side}-seed-{trial.params.seed}"
            for pair in pairs
            for side, trial in zip(("before", "after"), pair, strict=True)
        ]
        outcomes = engine.run_all(root, trials, labels, place, group.ended)
        runs = [
            run_of(root, request.metric, *each)
            for each in zip(trials, labels, outcomes, strict=True)
        ]
        before += runs[::2]
        after += runs[1::2]
        section = getattr(trials[0].params, request.model)
        comparison = Comparison(
            request.model,
            request.change,
            before,
            after,
            request.rules,
            request.metric,
            request.margin,
            request.looks,
            load(request.model).train.headline(section),
            request.is_paired,
        )
        yield comparison
        if comparison.verdict != "undecided":
            return


def run_of(root: Path, metric: str, trial: Trial, label: str, outcome: Outcome) -> Run:
    """Returns what a training left.

    Raises:
        CommandFailed: it neither finished nor diverged.
        ConfigError: it has no score of the metric.
    """
    seed, cpu = trial.params.seed, sum(outcome.cpu_seconds.values())
    if outcome.state == "diverged":
        return Run(seed, cpu_seconds=cpu, peak_memory=outcome.peak_memory)
    if outcome.state != "finished":
        reason = f"{label}: {outcome.state}: {outcome.reason}; the same command tries again"
        raise CommandFailed(reason)
    if metric not in outcome.scores:
        raise ConfigError(f"{label}: its evaluation has no {metric}; name another --metric")
    folder = folder_of(root, trial) / "models" / trial.model
    curves = history.from_csv(folders.read_text(folder / "history.csv"))
    weights = folders.file_digest(folder / "weights.safetensors")
    return Run(seed, outcome.scores, curves, weights, cpu, outcome.peak_memory)
