"""Each study varies what it says, in trials that differ in nothing else, and prints its table."""

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from pipeline.cli import main
from pipeline.trials import study
from pipeline.trials.studies import active_dynamics, allo, results
from pipeline.trials.study import Result, Row, Study
from pipeline.trials.trial import Outcome, Trial, folder_of
from quatrain.errors import ConfigError, DataError
from quatrain.storage import folders
from tests.conftest import ROOT, shapes_unchecked
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


def result(*scores: Mapping[str, float | None], **facts: Any) -> Result:
    outcomes = [FINISHED._replace(scores=each) for each in scores]
    return Result({"cpu": "some CPU"}, facts, outcomes)


# The runner.


def test_rows_are_stored_beside_those_of_other_runs(project: Path, monkeypatch: Patch):
    stand_in = engine(monkeypatch)
    of_allo = study.varied(project, "allo", "smoke", {"seeds": 1})
    other = of_allo._replace(key="other")
    shown: list[Any] = []
    for row in (Row("first", [of_allo, other], {"size": 3}), Row("second", [other])):
        study.perform(project, Study([row], ROWS, lambda of: shown.append(of) or "page"))
    assert stand_in.labels == ["first", "first", "second"]
    assert stand_in.trials == [of_allo, other, other]
    stored = study.read_results(project, ROWS)
    assert stored == shown[0] | shown[1]
    assert [list(each) for each in shown] == [["first"], ["second"]]
    assert stored["first"].outcomes == [FINISHED, FINISHED]
    assert (stored["first"].facts, stored["first"].machine["device"]) == ({"size": 3}, "cpu")


def test_a_row_without_scores_is_told_and_the_others_are_kept(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    engine(monkeypatch, FINISHED, Outcome("diverged", reason="step 3: not finite"), FINISHED)
    of_allo = study.varied(project, "allo", "smoke", {})
    rows = [
        Row("good", [of_allo]),
        Row("bad", [of_allo, of_allo]),
        Row("ragged", [], refused="line 2: short"),
    ]
    with pytest.raises(ConfigError, match="2 of 3 rows have no scores; the lines above say why"):
        study.perform(project, Study(rows, ROWS, "{0}".format))
    captured = capsys.readouterr()
    assert captured.err.splitlines() == [
        "passed over bad: step 3: not finite",
        "passed over ragged: line 2: short",
    ]
    assert "good" in captured.out
    assert list(study.read_results(project, ROWS)) == ["good"]


@pytest.mark.parametrize(
    ("device", "cores", "slot"),
    [("cpu", 8, (2, 0)), ("cpu", 1, (1, 0)), ("cuda", 8, (2, 1))],
    ids=["cpu", "fewer-cores-than-threads", "gpu"],
)
def test_a_trial_takes_the_cores_of_its_threads_and_a_whole_gpu(
    device: str, cores: int, slot: tuple[int, int], project: Path, monkeypatch: Patch
):
    engine(monkeypatch)
    machine = MagicMock()
    monkeypatch.setattr(study, "device_of", lambda *_: device)
    monkeypatch.setattr(study, "core_count", lambda: cores)
    monkeypatch.setattr(study, "Machine", machine)
    row = Row("only", [study.varied(project, "allo", "smoke", {})])
    study.perform(project, Study([row], ROWS, str))
    machine.assert_called_once_with(project, *slot, retries=1)


def test_a_file_or_page_that_cannot_take_results_costs_no_training(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    stand_in = engine(monkeypatch)
    (project / ROWS).write_text('{"first": {}}')
    with pytest.raises(DataError, match=r"rows\.json"):
        study.perform(project, Study([Row("first", [trial()])], ROWS, str))
    (project / results.PAGE).write_text(results.BEGIN)
    assert main(["results", "allo"]) == 3
    assert f"docs/results.md: needs the lines {results.BEGIN} and" in capsys.readouterr().err
    assert not stand_in.trials


def test_columns_show_intervals_and_dashes_for_what_is_missing():
    interval = {"ratio": 7.25, "ratio_low": 5.0, "ratio_high": 9.5}
    seeds = [{"cosine": cosine} for cosine in (0.998, 0.999, 1.0, 0.999)]
    for cell, row, text in [
        (study.fact("steps", "{:,}"), result(steps=4000), "4,000"),
        (study.score("ratio"), result(interval), "7.25 (5 to 9.5)"),
        (study.score("ratio"), result(interval | {"ratio_high": None}), "7.25"),
        (study.score("ratio"), result({"ratio": None}), "-"),
        (study.mean("cosine"), result(*seeds), "0.9990"),
        (study.mean("cosine", has_interval=True), result(*seeds), "0.9990 ± 0.0013"),
        (study.mean("cosine"), result(*seeds, {"cosine": None}), "-"),
        (study.mean("cosine", 2), result({}), "-"),
        (study.cpu_seconds("train"), result({}, {}), "40"),
        (study.cpu_seconds(), result({}), "21"),
    ]:
        assert cell(row) == text


def test_one_trial_that_misses_a_goal_is_not_made_up_for_by_the_others():
    rows = {
        "good": result(
            {"cosine_mean": 0.998, "orthogonality": 0.05, "cosine_paper": 0.98}, paper=None
        ),
        "poor": result(
            {"cosine_mean": 1.0, "orthogonality": 0.0, "cosine_paper": 0.98},
            {"cosine_mean": 0.99, "orthogonality": 0.2, "cosine_paper": 0.98},
            paper=0.99,
        ),
        "part": result({"cosine_mean": 1.0}, {"cosine_mean": None}, paper=None),
    }
    assert list(allo.goal_lines("large", rows)) == [
        "cosine_mean is at least 0.997 by every seed on 1 of 3; not on poor, part",
        "orthogonality is at most 0.1 by every seed on 1 of 3; not on poor, part",
        "paper's metric is at least the paper's ALLO in the mean on 0 of 1; not on poor",
    ]


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
    (project / "maps" / "ragged.txt").write_text("...\n....\n")
    stand_in = engine(monkeypatch)

    def run_all(*arguments: Any) -> Any:
        picture = folder_of(project, arguments[1][0]) / "reports" / "allo" / "plots" / "v.png"
        picture.parent.mkdir(parents=True)
        picture.touch()
        return stand_in(*arguments)

    monkeypatch.setattr(study, "run_all", run_all)
    assert main(["grids", "maps", "--seeds", "2", "--steps", "1000"]) == 2
    first, second = stand_in.trials
    assert (first.params.seed + 1, first.params.allo.seeds) == (second.params.seed, 1)
    assert first.data_key != second.data_key
    assert first.params.allo.train.steps == 1000
    assert first.files["inputs/allo/Maze 1.txt"] == Path("maps/Maze 1.txt")
    captured = capsys.readouterr()
    assert "passed over ragged: params.yaml: allo: inputs/allo/ragged.txt line 2" in captured.err
    assert "grids: 1 of 2 rows have no scores" in captured.err
    assert "| Maze 1 | 13 | 2 | - | " in captured.out
    assert (project / "grids-out" / "large" / "table.md").read_text() in captured.out
    assert (project / "grids-out" / "large" / "Maze 1" / "plots" / "v.png").exists()
    assert [*study.read_results(project, allo.GRIDS_FILE)] == ["Maze 1, preset large, 1000 steps"]


def test_the_catalogue_is_a_folder_of_maps(project: Path):
    options = Namespace(folder=Path("catalogue"), preset="smoke", seeds=1, steps=None)
    rows = {row.facts["map"]: row for row in allo.grids(project, options).rows}
    assert rows["maze9"].trials[0].params.allo.env.map.name == "maze9"
    assert (rows["maze9"].facts["states"], len(rows["room4"].trials)) == (31, 1)


def test_maps_have_the_sizes_that_their_names_say():
    rows = allo.states(ROOT, Namespace(maps=[], steps=None, batch=1024)).rows
    assert [row.name for row in rows] == list(allo.MAPS)
    for row in rows:
        expected = int(row.name.partition(", ")[2].replace(",", ""))
        assert row.facts["states"] == pytest.approx(expected, rel=0.05)
        assert row.facts["constraint"] == ("visits" if expected < 16_000 else "three")
    (brief,) = allo.states(ROOT, Namespace(maps=["hall, 1,000"], steps=200, batch=64)).rows
    assert brief.name == "hall, 1,000, 200 steps of 64"
    assert brief.trials[0].params.allo.train.batch_size == 64


def test_a_decoder_is_trained_on_what_it_can_decode(project: Path, monkeypatch: Patch):
    stand_in = engine(monkeypatch)
    assert main(["decoders", "--replicates", "2"]) == 0
    configs = [each.params.active_dynamics for each in stand_in.trials]
    assert [(each.network.decoder, each.env.observation.kind) for each in configs] == [
        ("known", "linear"),
        ("linear", "linear"),
        ("loglinear", "loglinear"),
        ("mlp", "linear"),
    ]
    assert {each.seeds for each in configs} == {2}
    stored = study.read_results(project, active_dynamics.DECODERS_FILE)["mlp"]
    assert stored.facts == {"replicates": 2, "transitions": 600}


@pytest.mark.full
def test_a_field_is_learned_by_all_arms(project: Path, capsys: Capture):
    options = ["fields", "--fields", "van_der_pol", "--replicates", "2", "--transitions", "40"]
    assert main(options) == 0
    table = capsys.readouterr().out
    (outcome,) = study.read_results(project, active_dynamics.FIELDS_FILE)["van_der_pol"].outcomes
    assert {f"field_nrmse.{arm}" for arm in ("active", "random", "prbs")} <= set(outcome.scores)
    assert set(outcome.cpu_seconds) == {"collect", "train", "evaluate"}
    assert "transition_ratio.random is at least 5 on 0 of 1; not on van_der_pol" in table


def test_settings_are_chosen_by_a_pilot_run_and_named(project: Path, monkeypatch: Patch):
    """Too much noise was assumed; the pilot run shows it."""
    finer = (("bayes_filter", ({"noise_sd": 0.1}, {"noise_sd": 0.3})),)
    monkeypatch.setattr("quatrain.models.active_dynamics.selection.CANDIDATES", finer)
    monkeypatch.setattr(active_dynamics, "PILOT", 60)
    stand_in = engine(monkeypatch)
    committed = (ROOT / "params.yaml").read_text()
    assumed = "process_noise: 0.01\n      noise_sd: "
    assert committed.count(f"{assumed}0.1\n") == 1
    (project / "params.yaml").write_text(committed.replace(f"{assumed}0.1\n", f"{assumed}0.3\n"))
    options = ["--fields", "duffing", "--replicates", "2", "--transitions", "40", "--choose"]
    with shapes_unchecked():
        assert main(["fields", *options]) == 0
    assert stand_in.labels == ["duffing, chosen by 60 more transitions"]
    assert stand_in.trials[0].params.active_dynamics.network.bayes_filter.noise_sd == 0.1
    assert stand_in.trials[0].params.active_dynamics.train.transitions == 40
    facts = folders.read_json(project / active_dynamics.FIELDS_FILE)[stand_in.labels[0]]["facts"]
    assert facts["settings"] == {"bayes_filter": {"noise_sd": 0.1}}
