"""Each study varies what it says, in trials that differ in nothing else, and prints its table."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.judging.gate import rules_of
from pipeline.trials import place, study
from pipeline.trials.studies import active_dynamics, allo, results
from pipeline.trials.study import Result, Row, Study
from pipeline.trials.trial import Outcome, Trial, make_trial
from quatrain.errors import ConfigError, DataError
from quatrain.judgement import Scores
from quatrain.presets import read_raw
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.trials.stand_ins import trial

ROWS = Path("rows.json")
FINISHED = Outcome("finished", {"score": 0.5}, {"collect": 1.0, "train": 20.0}, 30.0, 2**30)


@pytest.fixture
def project(root: Path, monkeypatch: Patch) -> Path:
    """A folder with the committed params and a page, in which no stage runs."""
    (root / "docs").mkdir()
    (root / results.PAGE).write_text(f"# Top\n\n{results.BEGIN}\nold\n{results.END}\n\nMore\n")
    (root / allo.PAPER).parent.mkdir(parents=True)
    (root / allo.PAPER).symlink_to(ROOT / allo.PAPER)
    monkeypatch.chdir(root)
    return root


class Engine:
    """Ends each trial at once, in place of `run_all`."""

    def __init__(self, *outcomes: Outcome) -> None:
        self.outcomes = outcomes or (FINISHED,)
        self.trials: list[Trial] = []
        self.labels: list[str] = []

    def __call__(self, _: Path, trials: Sequence[Trial], labels: Sequence[str], __: Any) -> Any:
        self.trials += trials
        self.labels += labels
        return [self.outcomes[number % len(self.outcomes)] for number in range(len(trials))]


def engine(patch: Patch, *outcomes: Outcome) -> Engine:
    stand_in = Engine(*outcomes)
    patch.setattr(study, "run_all", stand_in)
    return stand_in


def result(*scores: Scores, **facts: Any) -> Result:
    outcomes = [FINISHED._replace(scores=each) for each in scores]
    return Result({"cpu": "some CPU"}, facts, outcomes)


# The runner.


def test_rows_are_stored_beside_those_of_other_runs(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    stand_in = engine(monkeypatch)
    of_allo = study.varied(project, "allo", "smoke", {"seeds": 1})
    other = of_allo._replace(key="other")
    shown: list[Any] = []
    for rows in ({"first": Row([of_allo, other], {"size": 3})}, {"second": Row([other])}):
        study.perform(project, Study(rows, ROWS, lambda of: shown.append(of) or "page"))
    assert stand_in.labels == ["first", "first", "second"]
    assert stand_in.trials == [of_allo, other, other]
    stored = study.read_results(project, ROWS)
    assert stored == shown[0] | shown[1]
    assert [list(each) for each in shown] == [["first"], ["second"]]
    assert stored["first"].outcomes == [FINISHED, FINISHED]
    assert (stored["first"].facts, stored["first"].machine["device"]) == ({"size": 3}, "cpu")
    assert "second: plots are in .state/trials/other/reports" in capsys.readouterr().err


def test_a_row_without_scores_is_missing_and_the_others_are_kept(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    engine(monkeypatch, FINISHED, Outcome("diverged", reason="step 3: not finite"), FINISHED)
    of_allo = study.varied(project, "allo", "smoke", {})
    rows = {"good": Row([of_allo]), "bad": Row([of_allo, of_allo])}
    with pytest.raises(ConfigError, match="1 of 2 rows have no scores; the lines above say why"):
        study.perform(project, Study(rows, ROWS, "{0}".format))
    assert "good" in capsys.readouterr().out
    assert list(study.read_results(project, ROWS)) == ["good"]


@pytest.mark.parametrize(("device", "needs"), [("cpu", (3, 0)), ("cuda", (3, 1))])
def test_a_trial_takes_a_core_for_two_threads_and_a_whole_gpu(
    device: str, needs: tuple[int, int], project: Path, monkeypatch: Patch
):
    monkeypatch.setattr(place, "device_of", lambda *_: device)
    monkeypatch.setattr(place, "core_count", lambda: 8)
    raw = read_raw(project, "smoke") | {"threads": 5}
    of_trials = place.needs_of([make_trial(project, "allo", raw)])
    assert tuple(of_trials.values()) == needs


def test_a_file_or_page_that_cannot_take_results_costs_no_training(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    stand_in = engine(monkeypatch)
    (project / ROWS).write_text('{"first": {}}')
    with pytest.raises(DataError, match=r"rows\.json: first.*`git checkout rows\.json`"):
        study.perform(project, Study({"first": Row([trial()])}, ROWS, str))
    (project / results.PAGE).write_text(results.BEGIN)
    assert main(["results", "allo"]) == 3
    assert f"docs/results.md: needs the lines {results.BEGIN} and" in capsys.readouterr().err
    assert not stand_in.trials


def test_a_table_shows_facts_scores_and_what_stages_took():
    seeds = [{"cosine": cosine} for cosine in (0.998, 0.999, 1.0, 0.999)]
    interval = {"cosine": 7.25, "cosine_low": 5.0, "cosine_high": 9.5, "seeds": 4.0}
    rows = {
        "one": result(interval, states=40),
        "few": result(interval | {"seeds": 3.0}, states=31),
        "none": result({"cosine": None}, states=9),
        "four": result(*seeds, states=8),
        "gap": result(*seeds, {}, states=7),
    }
    assert study.table("map", {"mean": "cosine"}, (), rows).splitlines() == [
        "| map | states | mean | CPU seconds (collect + train + evaluate) |",
        "|-------|----------|-----------------|--------------------------------------------|",
        "| one | 40 | 7.25 (5 to 9.5) | 1 + 20 + 0 |",
        "| few | 31 | 7.25 | 1 + 20 + 0 |",
        "| none | 9 | - | 1 + 20 + 0 |",
        "| four | 8 | 0.9990 ± 0.0013 | 4 + 80 + 0 |",
        "| gap | 7 | - | 5 + 100 + 0 |",
    ]


def test_one_trial_that_misses_a_goal_is_not_made_up_for_by_the_others():
    rows = {
        "good": result({"cosine_mean": 0.998, "orthogonality": 0.05}),
        "poor": result(
            {"cosine_mean": 1.0, "orthogonality": 0.0}, {"cosine_mean": 0.99, "orthogonality": 0.2}
        ),
        "part": result({"cosine_mean": 1.0}, {"cosine_mean": None}),
    }
    assert list(study.goal_lines(rules_of("allo", "large"), rows)) == [
        "goal cosine_mean at least 0.997: missed by poor; part",
        "goal orthogonality at most 0.1: missed by poor; part",
    ]
    (line, _) = study.goal_lines(rules_of("allo", "large"), {"good": rows["good"]})
    assert line == "goal cosine_mean at least 0.997: reached by all 1 rows"


# What each study varies.


def test_results_have_as_many_seeds_as_asked_or_the_replicates_of_params_yaml(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    stand_in = engine(monkeypatch)
    assert main(["results", "allo", "active_dynamics", "--seeds", "7"]) == 0
    assert [each.params.allo.seeds for each in stand_in.trials] == [7, 1]
    assert stand_in.trials[1].params.active_dynamics.seeds == 10
    page = (project / results.PAGE).read_text()
    assert page.endswith(f"{results.END}\n\nMore\n")
    assert "old" not in page
    assert main(["results", "--page"]) == 0
    assert (project / results.PAGE).read_text() == page
    assert capsys.readouterr().out.count("| allo | cosine_mean (higher) | 7 |") == 2
    assert len(stand_in.trials) == 2


def test_the_committed_page_holds_the_committed_results():
    text = results.render(study.read_results(ROOT, results.FILE))
    assert f"{results.BEGIN}\n\n{text}\n\n{results.END}" in (ROOT / results.PAGE).read_text()


def test_each_seed_of_a_map_is_a_trial_with_data_of_its_own(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    (project / "maps").mkdir()
    (project / "maps" / "Maze 1.txt").write_text("....S\n..xx.\n....G\n")
    stand_in = engine(monkeypatch)
    assert main(["grids", "maps", "--seeds", "2", "--steps", "1000"]) == 0
    first, second = stand_in.trials
    assert (first.params.seed + 1, first.params.allo.seeds) == (second.params.seed, 1)
    assert first.data_key != second.data_key
    assert first.params.allo.train.steps == 1000
    assert first.files["inputs/allo/Maze 1.txt"] == Path("maps/Maze 1.txt")
    assert "| Maze 1, preset large, 1000 steps | 13 | 2 | - | " in capsys.readouterr().out
    assert [*study.read_results(project, allo.GRIDS_FILE)] == ["Maze 1, preset large, 1000 steps"]
    (project / "maps" / "ragged.txt").write_text("...\n....\n")
    assert main(["grids", "maps"]) == 2
    assert "params.yaml: allo: inputs/allo/ragged.txt line 2" in capsys.readouterr().err
    assert len(stand_in.trials) == 2


def test_maps_have_the_sizes_that_their_names_say():
    rows = allo.states(ROOT, Namespace(maps=[], steps=None)).rows
    assert [*rows] == list(allo.MAPS)
    for name, row in rows.items():
        expected = int(name.partition(", ")[2].replace(",", ""))
        assert row.facts["states"] == pytest.approx(expected, rel=0.05)
        assert row.facts["constraint"] == ("visits" if expected < 16_384 else "three")
    brief = allo.states(ROOT, Namespace(maps=["hall, 1,000"], steps=200)).rows
    assert brief["hall, 1,000, 200 steps"].trials[0].params.allo.train.evaluate_every == 200


def test_a_decoder_is_trained_on_what_it_can_decode(project: Path, monkeypatch: Patch):
    stand_in = engine(monkeypatch)
    assert main(["decoders", "--replicates", "3"]) == 0
    configs = [each.params.active_dynamics for each in stand_in.trials]
    assert [(each.network.decoder, each.env.observation.kind) for each in configs] == [
        ("known", "linear"),
        ("linear", "linear"),
        ("loglinear", "loglinear"),
        ("mlp", "linear"),
    ]
    assert {each.seeds for each in configs} == {3}
    stored = study.read_results(project, active_dynamics.DECODERS_FILE)["mlp"]
    assert stored.facts == {"replicates": 3, "transitions": 600}


def test_all_built_in_fields_are_learned(project: Path, monkeypatch: Patch):
    assert Path.cwd() == project
    stand_in = engine(monkeypatch)
    assert main(["fields"]) == 0
    configs = [each.params.active_dynamics for each in stand_in.trials]
    stored = study.read_results(ROOT, active_dynamics.FIELDS_FILE)
    assert {each.env.field.kind for each in configs} == set(stored)
    assert {(each.seeds, each.train.transitions) for each in configs} == {(10, 2000)}
