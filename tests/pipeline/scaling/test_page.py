"""Tests of what a person sees at the end of a sweep: its table, page and pictures."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from pipeline.scaling import page
from pipeline.scaling.importance import Importance, importance, obstacle
from pipeline.scaling.parallel import parallel_coordinates
from pipeline.scaling.pictures import slices
from pipeline.scaling.records import Point, State, Trial
from pipeline.scaling.result import Dimension, SweepResult, gain_of, ranked, winner_of

RATE = "train.learning_rate"
HIDDEN = "network.hidden"
KIND = "decoder.kind"
SPACE = {
    RATE: Dimension(1e-4, 1e-2, True, None),
    HIDDEN: Dimension(16, 512, True, None),
    "train.discount": Dimension(0.9, 0.999, False, None),
    KIND: Dimension(None, None, False, ("linear", "mlp", "convolutional_transposed")),
}


def sweep(trials: list[Trial], space: dict[str, Dimension] = SPACE, **changes: Any) -> SweepResult:
    result = SweepResult(
        name="allo_lr",
        model="allo",
        preset="smoke",
        judge="cosine_mean",
        higher_is_better=True,
        watch="cosine_mean",
        search="tpe",
        space=space,
        trials=trials,
        adopted="allo_lr",
    )
    return result._replace(**changes)


def trial(number: int, score: float | None = None, **changes: Any) -> Trial:
    """Returns a finished trial of the search; with another state, one without a score."""
    content = {
        "number": number,
        "role": "start" if number == 0 else "search",
        "values": {RATE: 1e-3 * (1 + number), HIDDEN: 64, "train.discount": 0.95, KIND: "mlp"},
        "state": "finished",
        "score": score,
    }
    return Trial.model_validate(content | changes)


def confirm(number: int, repeats: int, score: float, half: float | None = None) -> Trial:
    interval = {} if half is None else {"low": score - half, "high": score + half}
    return trial(number, score, role="confirm", repeats=repeats, **interval)


def drawn(count: int, space: dict[str, Dimension], seed: int = 0) -> list[dict[str, Any]]:
    """Returns random values of each key."""
    rng = np.random.default_rng(seed)

    def draw(dimension: Dimension) -> Any:
        if dimension.choices is not None:
            return dimension.choices[rng.integers(len(dimension.choices))]
        if isinstance(dimension.low, int):
            return int(rng.integers(dimension.low, dimension.high, endpoint=True))
        ends = np.array([dimension.low, dimension.high])
        return float(np.exp(rng.uniform(*np.log(ends))) if dimension.is_log else rng.uniform(*ends))

    return [{key: draw(dimension) for key, dimension in space.items()} for _ in range(count)]


def mixed(count: int, space: dict[str, Dimension] = SPACE, seed: int = 0) -> list[Trial]:
    """Returns trials of all states with random values and scores, the start first."""
    rng = np.random.default_rng(seed)
    others: list[State] = ["stopped", "diverged", "failed", "running"]
    trials = []
    for number, values in enumerate(drawn(count, space, seed)):
        last = Point(step=100, value=float(rng.normal()))
        if number % 3 == 2:
            state = others[number // 3 % len(others)]
            trials.append(trial(number, None, values=values, state=state, last=last))
        else:
            trials.append(trial(number, float(rng.normal()), values=values, last=last))
    return trials


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
    ("trials", "end"),
    [
        (
            [trial(0, 0.5), trial(1, 0.75)],
            "difference: 0.25 better in the search, where the best is also lucky; "
            "no interval is known",
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


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    """Returns the pairs of texts that cover one another; a turned one's box is far larger than it,
    so that pairs of such are left out.
    """
    figure.draw_without_rendering()
    texts = [
        text for text in figure.findobj(Text) if text.get_text().strip() and text.get_visible()
    ]
    boxes = [text.get_window_extent().padded(-1) for text in texts]
    return [
        (texts[i].get_text(), texts[j].get_text())
        for i in range(len(texts))
        for j in range(i)
        if boxes[i].overlaps(boxes[j]) and not texts[i].get_rotation() * texts[j].get_rotation()
    ]


def many_keys(count: int) -> dict[str, Dimension]:
    kinds = (
        Dimension(1e-7, 3e-3, True, None),
        Dimension(None, None, False, tuple(f"a_long_name_of_choice_{i}_of_23" for i in range(23))),
        Dimension(0.123456, 0.1234999, False, None),
        Dimension(1, 9, False, None),
        Dimension(None, None, False, ("one",)),
    )
    names = [f"section_{i}.part.some_quite_long_name_{i}" for i in range(count)]
    return {name: kinds[i % len(kinds)] for i, name in enumerate(names)}


@pytest.mark.parametrize(("keys", "trials"), [(1, 3), (2, 5), (5, 64), (8, 300)])
def test_no_text_of_coordinates_and_slices_covers_another(keys: int, trials: int):
    space = many_keys(keys)
    result = sweep(mixed(trials, space), space)
    coordinates = parallel_coordinates(result)
    assert overlapping(coordinates) == []
    assert len(coordinates.axes[0].texts) <= 40 + 3 * (keys + 1)
    assert overlapping(slices(result)) == []


def test_a_start_outside_of_the_space_is_drawn_and_labelled():
    outside = {RATE: 0.0, HIDDEN: None, "train.discount": 2.0, KIND: "none_of_these"}
    trials = [trial(0, 0.5, values=outside), *mixed(6)[1:]]
    (axes,) = page.figures(sweep(trials))["parallel_coordinates"].axes
    labels = {text.get_text() for text in axes.texts}
    assert {"0", "null", "2", "none_of_these"} <= labels


def line_heights(result: SweepResult, count: int) -> list[float]:
    """Returns where the coloured lines end on the axis of the score, the worst first."""
    (axes,) = page.figures(result)["parallel_coordinates"].axes
    _, lines = axes.collections
    ends = [path.vertices[-1, 1] for path in lines.get_paths()]
    assert len(ends) == count
    return ends


@pytest.mark.parametrize("higher", [True, False])
def test_better_is_up_and_drawn_last_in_the_parallel_coordinates(higher: bool):
    trials = [trial(0, 0.5), trial(1, 0.3), trial(2, 0.7), trial(3, None, state="stopped")]
    heights = line_heights(sweep(trials, higher_is_better=higher), 3)
    np.testing.assert_allclose(heights, [0, 0.5, 1])


def test_one_score_that_is_far_worse_does_not_squeeze_the_others():
    scores = [0.5, 0.6, 0.7, 0.8, 0.9, -1e9]
    trials = [trial(number, score) for number, score in enumerate(scores)]
    heights = line_heights(sweep(trials), 6)
    np.testing.assert_allclose(heights, [0, 0, 0.25, 0.5, 0.75, 1], atol=1e-9)


NULL = {
    RATE: Dimension(1e-4, 1e-2, True, None),
    HIDDEN: Dimension(16, 512, True, None),
    KIND: Dimension(None, None, False, ("a", "b", "c")),
    "train.null": Dimension(0.0, 1.0, False, None),
}


def importance_of(count: int, seed: int, score: Any) -> Importance:
    """Returns importances for scores that are a function of values and a random generator."""
    rng = np.random.default_rng(seed)
    values = drawn(count + 1, NULL, seed)
    trials = [trial(i, float(score(each, rng)), values=each) for i, each in enumerate(values)]
    return importance(sweep(trials, NULL))


def test_a_key_that_decides_the_score_gets_the_importance_and_others_nearly_none():
    result = importance_of(64, 1, lambda values, _: -abs(np.log10(values[RATE]) + 3))
    assert result.clear == [RATE]
    assert result.shares[RATE] > 0.5
    assert max(result.shares[key] for key in (HIDDEN, KIND, "train.null")) < 0.1


def test_a_choice_that_decides_who_is_among_the_best_gets_nearly_all():
    result = importance_of(64, 2, lambda values, rng: (values[KIND] == "b") + 0.01 * rng.normal())
    assert next(iter(result.shares)) == KIND
    assert KIND in result.clear
    others = [share for key, share in result.shares.items() if key != KIND]
    assert result.shares[KIND] > 4 * max(others)


def test_random_scores_give_no_key_an_importance_more_often_than_chance():
    studies = [importance_of(40, seed, lambda _, rng: rng.normal()) for seed in range(6)]
    # 24 keys without effect, of which one in a hundred passes its mark by chance.
    assert sum(len(each.clear) for each in studies) <= 2
    assert np.mean([share for each in studies for share in each.shares.values()]) < 0.06


def test_importance_says_why_it_is_missing(tmp_path: Path):
    few = [trial(number, 0.1 * number) for number in range(10)]
    assert obstacle(sweep(few)) == ("importance needs 10 finished trials of the search, here are 9")
    page.write(tmp_path, sweep(few))
    assert "No picture of importance: importance needs 10" in (tmp_path / "sweep.md").read_text()
    equal = [trial(number, 0.5) for number in range(20)]
    assert "too many here have equal ones" in obstacle(sweep(equal))
    assert obstacle(sweep([trial(number, 0.1 * number) for number in range(11)])) == ""
    assert set(page.figures(sweep(equal))) == {"parallel_coordinates", "slices", "history"}


def test_the_page_is_imported_without_optuna_ray_and_matplotlib():
    code = (
        "import sys; from pipeline.scaling import page; "
        "print(sorted({'optuna', 'ray', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_stopped_trials_are_hollow_marks_beside_others_of_the_watched_metric():
    trials = [
        trial(0, 0.5, last=Point(step=900, value=0.4)),
        trial(1, None, state="stopped", last=Point(step=100, value=0.1)),
        trial(2, None, state="diverged", last=Point(step=100, value=1e30)),
    ]
    judged_at_end, watched = page.figures(sweep(trials))["history"].axes
    assert watched.get_ylabel() == "last train/cosine_mean"
    finished, stopped = watched.collections
    assert (finished.get_offsets().tolist(), len(finished.get_facecolor())) == ([[0, 0.4]], 1)
    assert (stopped.get_offsets().tolist(), len(stopped.get_facecolor())) == ([[1, 0.1]], 0)
    scores, *_ = judged_at_end.collections
    assert scores.get_offsets().tolist() == [[0, 0.5]]


@pytest.mark.parametrize(("higher", "best"), [(True, [0.5, 0.5, 0.7]), (False, [0.5, 0.3, 0.3])])
def test_the_history_draws_the_best_so_far_and_the_start(higher: bool, best: list[float]):
    trials = [trial(0, 0.5), trial(1, 0.3), trial(2, 0.7), confirm(3, 2, 0.4, half=0.1)]
    (axes,) = page.figures(sweep(trials, higher_is_better=higher))["history"].axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["best so far"].get_ydata().tolist() == best
    assert set(lines["start"].get_ydata()) == {0.5}
    (repeat,) = axes.containers
    np.testing.assert_allclose(repeat.lines[2][0].get_segments(), [[[2, 0.3], [2, 0.5]]])
