"""Tests of what a person reads at the end of a sweep: its table and its page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.scaling import page
from pipeline.scaling.records import Point, Trial
from pipeline.scaling.result import Dimension, gain_of, ranked, winner_of
from tests.pipeline.scaling.sweep_trials import KIND, SPACE, confirm, mixed, sweep, trial


def rows_of(text: str) -> list[str]:
    """Returns the first column of a table in the terminal, below its head."""
    lines = text.splitlines()[2:]
    return [line.split()[0] for line in lines if line[:4].isdigit() and ":" not in line]


@pytest.mark.parametrize(("higher", "order"), [(True, [2, 0, 1]), (False, [1, 0, 2])])
def test_the_best_come_first_in_either_direction(higher: bool, order: list[int]):
    trials = [trial(0, 0.5), trial(1, 0.3), trial(2, 0.7)]
    result = sweep(trials, higher_is_better=higher)
    assert [each.number for each in ranked(result, trials)] == order
    assert rows_of(page.table(result)) == [f"{number:04d}" for number in order]
    assert winner_of(result) == trials[order[0]]


def test_a_stopped_trial_is_never_ranked_by_its_watched_value():
    stopped = trial(2, None, state="stopped", last=Point(step=500, value=99.0))
    result = sweep([trial(0, 0.5), trial(1, 0.3), stopped])
    assert [each.number for each in ranked(result, result.trials)] == [0, 1]
    text = page.table(result)
    assert rows_of(text) == ["0000", "0001", "0002"]
    row = next(line for line in text.splitlines() if line.startswith("0002")).split()
    assert row[:3] == ["0002", "search", "stopped"]
    assert row[-5:] == ["-", "99", "500", "0", "-"]


def test_only_a_finished_trial_with_a_score_can_win():
    trials = [
        trial(0, 0.5),
        trial(1, None),
        trial(2, 0.9, state="stopped"),
        trial(3, 0.8, state="failed", reason="the disk was full"),
    ]
    result = sweep(trials)
    assert ranked(result, trials) == [trials[0]]
    assert rows_of(page.table(result)) == ["0000", "0001", "0002", "0003"]


def test_half_an_interval_is_none():
    trials = [
        trial(0, 0.5, low=0.4, high=0.6, seeds=5),
        trial(1, 0.9, low=0.8, seeds=5),
    ]
    gain = gain_of(sweep(trials), trials[1])
    assert gain is not None
    assert (gain.half, gain.is_clear) == (None, None)


def test_the_winner_is_the_best_when_confirmed_not_the_luckiest_of_the_search():
    trials = [trial(0, 0.5), trial(1, 0.9), trial(2, 0.8)]
    assert winner_of(sweep(trials)) == trials[1]
    trials += [confirm(3, 1, 0.55), confirm(4, 2, 0.75), confirm(5, 0, 0.6)]
    assert winner_of(sweep(trials)) == trials[2]
    lower = sweep(trials, higher_is_better=False)
    assert winner_of(lower) == trials[1]


def test_a_confirmation_without_a_score_does_not_count():
    failed = trial(3, None, role="confirm", repeats=1, state="failed", reason="no memory")
    trials = [trial(0, 0.5), trial(1, 0.9), failed]
    result = sweep(trials)
    assert winner_of(result) == trials[1]
    gain = gain_of(result, trials[1])
    assert gain is not None
    assert not gain.is_confirmed


def test_the_difference_to_the_start_compares_confirmed_scores_with_an_interval():
    trials = [trial(0, 0.5), trial(1, 0.9), confirm(2, 1, 0.7, half=0.03)]
    trials.append(confirm(3, 0, 0.6, half=0.04))
    result = sweep(trials)
    gain = gain_of(result, trials[1])
    assert gain is not None
    assert gain.value == pytest.approx(0.1)
    assert gain.half == pytest.approx(0.05)
    assert (gain.is_confirmed, gain.is_clear) == (True, True)
    assert page.table(result).splitlines()[-3:] == [
        "best: trial 0001, cosine_mean 0.9 in the search, 0.7 (0.67 to 0.73) when confirmed",
        "start: trial 0000, cosine_mean 0.5 in the search, 0.6 (0.56 to 0.64) when confirmed",
        "difference: 0.1 ± 0.05 better when confirmed; more than chance",
    ]
    worse = gain_of(sweep(trials, higher_is_better=False), trials[1])
    assert worse is not None
    assert worse.value == pytest.approx(-0.1)


@pytest.mark.parametrize(
    ("best", "start", "said"),
    [
        (1, 1, "0.1 better when confirmed; one seed: no interval; cannot tell from chance"),
        (3, 3, "0.1 better when confirmed; 3 seeds: no interval; cannot tell from chance"),
        (5, 3, "0.1 better when confirmed; 3 seeds: no interval; cannot tell from chance"),
        (4, 4, "0.1 ± 0.05 better when confirmed; more than chance"),
    ],
)
def test_fewer_than_four_seeds_are_never_more_than_chance(best: int, start: int, said: str):
    """An interval that such a trial may have is one over episodes."""
    trials = [trial(0, 0.5), trial(1, 0.9), confirm(2, 1, 0.7, half=0.03, seeds=best)]
    trials.append(confirm(3, 0, 0.6, half=0.04, seeds=start))
    text = page.table(sweep(trials))
    assert text.splitlines()[-1] == f"difference: {said}"
    assert ("0.7 (0.67 to 0.73)" in text) == (best >= 4)


@pytest.mark.parametrize(
    ("trials", "end"),
    [
        (
            [trial(0, 0.5), trial(1, 0.75)],
            "difference: 0.25 better in the search, where the best is also lucky; "
            "one seed: no interval; cannot tell from chance",
        ),
        ([trial(0, 0.5), trial(1, 0.4)], "No values were better than those of the start."),
        (
            [trial(0, None, state="failed", reason="x"), trial(1, 0.4)],
            "difference: none, because the start has no score",
        ),
        (
            [trial(0, None, state="failed", reason="no space")],
            "best: none, because no trial has a score of cosine_mean",
        ),
        ([], "best: none, because no trial has a score of cosine_mean"),
    ],
)
def test_the_last_line_says_how_the_best_compares_with_the_start(trials: list[Trial], end: str):
    assert page.table(sweep(trials)).splitlines()[-1] == end


def test_a_long_sweep_shows_ten_the_start_and_counts_of_the_others():
    trials = [trial(0, -1.0), *(trial(number, number / 100) for number in range(1, 30))]
    trials += [trial(number, None, state="stopped") for number in range(30, 34)]
    trials += [
        trial(number, None, state="diverged", reason=f"NaN at {number}") for number in (34, 35)
    ]
    trials.append(confirm(36, 29, 0.2))
    text = page.table(sweep(trials))
    best = [f"{number:04d}" for number in range(29, 19, -1)]
    assert rows_of(text) == [*best, "0000", "0036"]
    assert "\nand 25 others: 19 finished, 4 stopped, 2 diverged\n" in text
    assert "\n0034 diverged: NaN at 34; alike: 0035\n" in text
    confirming = next(line for line in text.splitlines() if line.startswith("0036"))
    assert confirming.split()[-1] == "0029"


def test_trials_json_gives_back_every_trial(tmp_path: Path):
    dimension = Dimension(None, None, False, ([64, 64], None, True, 1, "1"))
    space = {**SPACE, "network.layers": dimension}
    trials = mixed(9)
    choices = [*dimension.choices, 1, 1, 1, 1] if dimension.choices else []
    for each, choice in zip(trials, choices, strict=True):
        each.values["network.layers"] = choice
    trials[3] = trials[3].model_copy(update={"seconds": float("inf")})
    page.write(tmp_path, sweep(trials, space))
    stored = json.loads((tmp_path / "trials.json").read_text(), parse_constant=pytest.fail)
    assert stored["space"]["network.layers"]["choices"] == [[64, 64], None, True, 1, "1"]
    assert stored["winner"] == ranked(sweep(trials), trials)[0].number
    assert stored["trials"][3].pop("seconds") is None
    again = [Trial.model_validate(each) for each in stored["trials"]]
    assert again == [*trials[:3], trials[3].model_copy(update={"seconds": 0.0}), *trials[4:]]


def test_the_page_holds_outcome_pictures_and_every_trial(tmp_path: Path):
    trials = mixed(40)
    best = ranked(sweep(trials), trials)[0]
    trials += [confirm(40, best.number, 1.0, half=0.1), confirm(41, 0, 0.9, half=0.1)]
    page.write(tmp_path, sweep(trials))
    pictures = sorted(path.stem for path in (tmp_path / "plots").iterdir())
    assert pictures == ["history", "importance", "parallel_coordinates", "slices"]
    text = (tmp_path / "sweep.md").read_text()
    for each in trials:
        assert f"\n| {each.name} | {each.role} | {each.state} |" in text
    row = f"| {best.name} | {best.score:.5g} | 1 (0.9 to 1.1) | "
    assert row in text
    assert "`make repro PRESET=allo_lr MODELS=allo`" in text
    html = (tmp_path / "sweep.html").read_text()
    assert html.count("data:image/png;base64,") == 4
    assert "nan" not in (text + page.table(sweep(trials))).lower()


def test_markup_in_reasons_and_values_does_not_reach_the_page(tmp_path: Path):
    evil = "<script>alert(1)</script> | x"
    space = {KIND: Dimension(None, None, False, (evil, "b"))}
    trials = [
        trial(0, 0.1, values={KIND: evil}),
        trial(1, None, values={KIND: "b"}, state="failed", reason=evil),
    ]
    page.write(tmp_path, sweep(trials, space))
    assert "<script" not in (tmp_path / "sweep.html").read_text()


@pytest.mark.parametrize("count", [0, 5])
def test_a_sweep_without_scores_has_a_page_without_pictures(tmp_path: Path, count: int):
    trials = [trial(number, None, state="failed", reason="full disk") for number in range(count)]
    page.write(tmp_path, sweep(mixed(5)))
    page.write(tmp_path, sweep(trials, adopted=None))
    assert list((tmp_path / "plots").iterdir()) == []
    text = (tmp_path / "sweep.md").read_text()
    assert "No pictures: no trial has a score of cosine_mean." in text
    assert "No preset was written." in text
    assert text.count("full disk") == count
    assert ("No trial was run." in text) == (count == 0)


def test_the_page_is_imported_without_optuna_ray_and_matplotlib():
    code = (
        "import sys; from pipeline.scaling import page; "
        "print(sorted({'optuna', 'ray', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
