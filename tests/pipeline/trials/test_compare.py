"""A comparison's driver: when it ends, what it trains, records and writes."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.judging.gate import rules_of
from pipeline.runtime.errors import CommandFailed, Interrupted, LockHeld
from pipeline.runtime.processes import folder_lock
from pipeline.tracking.outbox import Outbox
from pipeline.trials import compare
from pipeline.trials.compare_page import of_references, what_differs
from pipeline.trials.engine import Event
from pipeline.trials.group import Group
from pipeline.trials.sides import Request, Side, read_side
from pipeline.trials.trial import Outcome, Trial, folder_of
from quatrain.comparison import Comparison, Run
from quatrain.envs.host.score import ORIGIN
from quatrain.errors import ConfigError
from quatrain.presets import read_raw
from quatrain.validation import overlaid
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import client_of, header
from tests.pipeline.trials.stand_ins import InventedPlace, SilentGroup, key_of

METRIC, RATE = "cosine_mean", 3e-3
RULES = rules_of("allo", "default")
PLOTS = Comparison.plots
SEEDS = [f"{side}-seed-{seed}" for seed in range(6) for side in ("before", "after")]
"""Both sides of each seed, in the order in which they are trained."""
Scores = Callable[[bool, int], float | Outcome]
SCORES: dict[str, Scores] = {
    "better": lambda is_after, seed: 0.5 + 0.1 * is_after + 0.01 * seed,
    "equal": lambda _, seed: seed,
    "diverging": lambda is_after, seed: Outcome("diverged") if is_after and seed else seed,
    "unsure": lambda is_after, seed: 0.5 + 0.1 * (-1) ** seed * is_after,
}


def asked(root: Path, **changes: Any) -> Request:
    raw = read_raw(root)
    after = Side("new", overlaid(raw, {"allo": {"train": {"learning_rate": RATE}}}))
    sides = Side("old <b>", raw), after
    request = Request("lr", "allo", "a change", *sides, RULES, METRIC, 0.05, (4, 6), True, [])
    return request._replace(**changes)


class Driver:
    """Runs a comparison of a root again and again."""

    def __init__(self, root: Path, patch: Patch) -> None:
        self.root = root
        self.group = SilentGroup()
        self.report = root / "reports" / "compare" / "lr"
        patch.setattr("pipeline.trials.trial._key", key_of)
        patch.setattr(compare, "Group", lambda *_: self.group)
        patch.setattr(Comparison, "plots", lambda _: {})  # which take longest

    def run(self, scores: Scores, dies_at: int = 99, **changes: Any) -> list[str]:
        """The trainings that were begun; the driver dies when it has begun so many."""
        begun: list[str] = []

        def script(trial: Trial) -> list[Event | Exception]:
            is_after, seed = trial.params.allo.train.learning_rate == RATE, trial.params.seed
            begun.append(f"{'after' if is_after else 'before'}-seed-{seed}")
            leave(folder_of(self.root, trial), trial.key)
            ended = scores(is_after, seed)
            return [ended if isinstance(ended, Outcome) else Outcome("finished", {METRIC: ended})]

        place = InventedPlace(self.root, script, dies_at)
        with suppress(Interrupted):
            self.code = compare.run(self.root, asked(self.root, **changes), place)
        return begun


def leave(folder: Path, key: str) -> None:
    """Writes what a training leaves."""
    learner = folder / "models" / "allo"
    learner.mkdir(parents=True, exist_ok=True)
    (learner / "history.csv").write_text("step,cosine_mean\n10,0.1\n20,0.5\n")
    (learner / "weights.safetensors").write_text("weights")
    outbox = Outbox(folder / ".state" / "outbox" / "train@allo-1.sqlite")
    outbox.begin(header(key))
    outbox.end("FINISHED")


@pytest.fixture
def driver(root: Path, monkeypatch: Patch) -> Driver:
    return Driver(root, monkeypatch)


@pytest.mark.parametrize(
    ("scores", "seeds", "verdict", "said"),
    [
        ("better", 4, "better", "allo, a change: better: +0.1 (+0.1 to +0.1) cosine_mean, in 4 of"),
        ("equal", 4, "no difference", "equal in all 4 seeds; the weights are the same bytes."),
        ("diverging", 6, "worse", "in 5 of 6 seeds. Diverged: 0 seeds before, 5 after."),
        ("unsure", 6, "undecided", "undecided after 6 seeds: "),
    ],
    ids=SCORES,
)
def test_it_ends_when_it_is_decided_or_has_no_more_seeds(
    scores: str, seeds: int, verdict: str, said: str, driver: Driver, capsys: Capture
):
    assert (driver.run(SCORES[scores]), driver.code) == (SEEDS[: 2 * seeds], 0)
    stored = json.loads((driver.report / "compare.json").read_text())
    assert (stored["verdict"], len(stored["before"])) == (verdict, seeds)
    printed = capsys.readouterr().out
    assert said in printed
    assert printed.endswith("\npage     reports/compare/lr/compare.html\n")
    assert (driver.run(SCORES[scores], fail_if=[verdict]), driver.code) == ([], 4)


@pytest.mark.parametrize(
    ("odd", "error", "said"),
    [
        (Outcome("failed", reason="no memory"), CommandFailed, "failed: no memory; the same comm"),
        (Outcome("finished", {"gap": 1.0}), ConfigError, "its evaluation has no cosine_mean; name"),
    ],
)
def test_a_training_without_a_score_ends_it_with_the_name_of_the_training(
    odd: Outcome, error: type[Exception], said: str, driver: Driver
):
    with pytest.raises(error, match=f"^after-seed-1: {said}"):
        driver.run(lambda *of: odd if of == (True, 1) else 0.5)
    driver.group.finish.assert_called_once_with("FAILED", [])


def test_a_second_one_of_the_same_name_is_refused(driver: Driver):
    lock = folder_lock(driver.root / ".state" / "compare" / "lr")
    with lock, pytest.raises(LockHeld, match="lr is at work"):
        driver.run(SCORES["better"])


def test_a_killed_one_continues_and_each_training_has_one_run(
    driver: Driver, uri: str, monkeypatch: Patch
):
    def compared() -> Any:
        experiment = client_of(uri).get_experiment_by_name("quatrain").experiment_id
        (run,) = client_of(uri).search_runs([experiment], "tags.`quatrain.compare` = 'true'")
        return run.info.status, run.data.tags.get("quatrain.verdict"), run.data

    monkeypatch.setattr(compare, "Group", Group)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    assert driver.run(SCORES["unsure"], dies_at=9) == SEEDS[:10]
    assert compared()[:2] == ("KILLED", None)
    assert driver.run(SCORES["unsure"]) == SEEDS[8:], "what had not ended begins again"
    status, verdict, data = compared()
    assert (status, verdict) == ("FINISHED", "undecided")
    assert "undecided after 6 seeds" in data.tags["mlflow.note.content"]
    ends = [data.metrics[f"difference/{end}"] for end in ("low", "mean", "high")]
    assert ends == pytest.approx([-0.135, 0, 0.135], abs=2e-3)
    outboxes = (driver.root / ".state" / "groups").rglob("compare-lr-*.sqlite")
    names = [path.name.rpartition("-")[0] for path in outboxes]
    assert sorted(names) == sorted(f"compare-lr-{label}" for label in SEEDS)


def test_the_report_names_sides_and_params_without_their_markup(driver: Driver, monkeypatch: Patch):
    monkeypatch.setattr(Comparison, "plots", PLOTS)
    driver.run(SCORES["better"])
    html, markdown = ((driver.report / f"compare.{kind}").read_text() for kind in ("html", "md"))
    assert "<b>" not in html
    assert html.count("data:image/png;base64,") == len([*driver.report.glob("plots/*.png")]) == 2
    assert markdown.startswith("# allo, a change: better: +0.1 ")
    assert "* before: old &lt;b&gt;\n* after: new\n" in markdown
    assert "* `allo.train.learning_rate`: 0.001 -> 0.003\n" in markdown
    status, files = driver.group.finish.call_args.args
    assert (status, {path.parent.name for path in files}) == ("FINISHED", {"lr", "plots"})


def test_commits_between_the_sides_are_named_and_a_long_list_is_cut(repository: Path):
    before = read_side(repository, "allo", "code", "default")
    *_, commit = what_differs(repository, asked(repository, before=before))
    assert re.fullmatch(r"commit [0-9a-f]{7,} a &lt;later&gt; one", commit)
    sides = Side("old", {}), Side("new", {str(number): number for number in range(30)})
    lines = what_differs(repository, asked(repository, before=sides[0], after=sides[1]))
    assert (len(lines), lines[-1]) == (21, "and 12 more")


def test_references_that_differ_in_a_pair_are_named():
    old, new = ([Run(0, {METRIC: 0.5, "floor_random": floor})] * 4 for floor in (0.1, 0.2))
    comparison = Comparison("allo", "a change", old, old, RULES, METRIC, 0.1)
    assert of_references(comparison) == []
    (said,) = of_references(replace(comparison, after=new))
    assert said.startswith("References of equal seeds differ (floor_random): ")
    assert of_references(replace(comparison, after=new, is_paired=False)) == []
    scaled = [run._replace(scores={**run.scores, ORIGIN: 0.0}) for run in new]
    assert of_references(replace(comparison, after=scaled)) == [said]  # no scale before
    old_scaled = [run._replace(scores={**run.scores, ORIGIN: 0.1}) for run in old]
    assert of_references(replace(comparison, before=old_scaled, after=scaled)) == []
