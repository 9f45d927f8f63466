"""Two sides of trainings: what is said of them, and how often that is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from quatrain.baselines import Rule
from quatrain.comparison import (
    BATCHES,
    MOST_NEEDED,
    Comparison,
    Difference,
    Run,
    looks_to,
    measure,
    nominal_level,
)
from quatrain.comparison_sides import compared_rules
from quatrain.envs.host.score import ORIGIN, UNIT, score
from quatrain.errors import ConfigError, TrainingDiverged

COMPARISONS = 2_000
RULES = (
    Rule("error", "lower", 0.5, {}),
    Rule("share", "near", 0.1, {}),
    Rule("return", "higher", 3.0, {}),
)
OLD = np.array([5.0, 7.0, 6.0, 9.0, 8.0])
STEPS = np.array([10, 20, 30])


def run(seed: int, gain: float = 0.0, **fields: object) -> Run:
    scores = {"return": OLD[seed] + gain * (4 + seed), "error": 2.0 - gain, "share": 0.5 + gain}
    history = {"return": (STEPS, np.array([0.0, 0.5, 1.0]) * (1 + gain))}
    return Run(seed, **{"scores": scores, "history": history, "weights": "same"} | fields)


def runs(gain: float = 0.0, **fields: object) -> list[Run]:
    return [run(seed, gain, **fields) for seed in range(len(OLD))]


def compare(after: list[Run], **fields: object) -> Comparison:
    """Returns a comparison of invented trainings with others."""
    before = runs(cpu_seconds=10.0, peak_memory=2.0**30)
    names = ("iqn", "a <b> c", before, after, RULES, "return", 3.0, (5,), ("return",))
    return replace(Comparison(*names), **fields)


@pytest.mark.parametrize("is_paired", [True, False])
def test_an_interval_is_that_of_scipy(is_paired: bool):
    rng = np.random.default_rng(0)
    old, new = rng.normal(0, 1, 7), rng.normal(1, 3, 7)
    tested = stats.ttest_rel(new, old) if is_paired else stats.ttest_ind(new, old, equal_var=False)
    difference = measure(old, new, "higher", 0.0, 0.02, is_paired)
    low, high = tested.confidence_interval(0.98)
    assert (difference.low, difference.high) == pytest.approx((low, high))
    assert difference.mean == pytest.approx(new.mean() - old.mean())
    correlation = np.corrcoef(old, new)[0, 1] if is_paired else math.nan
    assert difference.correlation == pytest.approx(correlation, nan_ok=True)


@pytest.mark.parametrize(
    ("shift", "direction", "verdict", "better_in"),
    [
        (2.0, "higher", "better", 5),
        (-2.0, "higher", "worse", 0),
        (-2.0, "lower", "better", 5),
        (2.0, "lower", "worse", 0),
        (-2.0, "near", "differs", None),
        (0.1, "lower", "no difference", 2),
        (0.4, "higher", "undecided", 3),
    ],
)
def test_a_verdict_follows_the_direction(
    shift: float, direction: str, verdict: str, better_in: int | None
):
    noise = np.array([0.4, -0.5, 0.2, -0.4, 0.3])
    difference = measure(OLD, OLD + shift + noise, direction, 0.7)
    assert (difference.verdict, difference.better_in) == (verdict, better_in)
    assert (difference.needed is None) == (verdict != "undecided")


@pytest.mark.parametrize(("direction", "worst"), [("higher", 4.0), ("lower", 10.0)])
def test_a_training_that_diverged_is_worse_than_all_others(direction: str, worst: float):
    new = np.array([np.nan, 7.0, np.nan, 9.0, 8.0])
    expected = measure(OLD, np.where(np.isnan(new), worst, new), direction, 1.0)
    difference = measure(OLD, new, direction, 1.0)
    np.testing.assert_array_equal(difference.each, expected.each)
    assert difference.after == expected.after
    always = measure(np.full(5, 1.0), np.full(5, np.nan), direction, 1.0)
    assert always.verdict == "worse"
    rarely = measure(np.full(16, 0.9), np.append(np.full(15, 0.9), np.nan), direction, 9.0)
    assert rarely.verdict == "undecided", "not alike, though the margin is wide"


@pytest.mark.parametrize(("shift", "margin"), [(0.3, 0.0), (0.1, 0.5)])
@pytest.mark.parametrize("is_paired", [True, False])
def test_so_many_seeds_as_are_needed_decide_and_fewer_do_not(
    shift: float, margin: float, is_paired: bool
):
    def decide(repeats: int) -> Difference:
        """Measures the same mean and standard deviation over 4 seeds for each repeat."""
        count = 4 * repeats
        parts = np.tile([1.0, -1.0], 2 * repeats), np.repeat([1.0, -1.0], 2 * repeats)
        old, new = (part * math.sqrt((count - 1) / count) for part in parts)
        return measure(old, new + shift, "higher", margin, is_paired=is_paired)

    needed = decide(2).needed
    assert needed is not None
    assert decide(needed // 4 - 1).verdict == "undecided"
    assert decide(needed // 4 + 2).verdict != "undecided"


def test_looks_end_at_the_most_seeds_and_have_an_interval_each():
    assert [looks_to(seeds) for seeds in (4, 10, 32)] == [(4,), (4, 8, 10), (4, 8, 16, 32)]
    for seeds, batches in ((3, BATCHES), (16, (2, 8)), (16, (8, 4)), (16, (4, 4))):
        with pytest.raises(ConfigError, match="from 4 on"):
            looks_to(seeds, batches)


@pytest.mark.parametrize(("looks", "level"), [((8,), 0.05), (BATCHES, 0.0194)])
def test_more_looks_have_a_lower_level(looks: tuple[int, ...], level: float):
    assert nominal_level(looks) == pytest.approx(level, abs=3e-4)


def share_different(sides: np.ndarray, shift: float, level: float) -> float:
    """Returns how many comparisons call their sides better or worse at any look."""
    different = 0
    for old, new in sides:
        looks = (
            measure(old[:count], new[:count] + shift, "higher", math.inf, level).verdict
            for count in BATCHES
        )
        different += any(verdict != "no difference" for verdict in looks)
    return different / len(sides)


def test_equal_sides_are_rarely_called_different_however_often_one_looks():
    sides = np.random.default_rng(0).standard_normal((COMPARISONS, 2, BATCHES[-1]))
    level = nominal_level(BATCHES)
    assert share_different(sides, 0.0, level) <= 0.05
    assert share_different(sides[:500], math.sqrt(2), level) >= 0.9
    assert share_different(sides[:500], 0.0, 0.05) > 0.08  # looks that are not corrected


NO_MARGIN = {"margin": 0.0}


@pytest.mark.parametrize(
    ("said", "after", "fields"),
    [
        ("better: +6 (+4.04 to +7.96) return, in 5 of 5 seeds.", runs(1.0), {}),
        ("worse: -1.2 (-1.59 to -0.807) return, in 5 of 5", runs(-0.2), {}),
        ("in 5 of 5 seeds; less than the 3 that the gate tolerates.", runs(-0.2), {}),
        ("differs: -1 (-1 to -1) share;", runs(-1.0), {"metric": "share"}),
        ("no difference that matters: +0.16 (-0.284", [run(0, 0.2), *runs()[1:]], {"margin": 1.0}),
        (" over 5 seeds, within the 3 that the gate", [run(0, 0.2), *runs()[1:]], {}),
        ("is equal in all 5 seeds; the weights are the same bytes.", runs(), {}),
        ("is equal in all 5 seeds.", runs(weights="other"), {}),
        ("undecided after 5 seeds: +0.36", [*runs(0.2)[:2], *runs()[2:]], NO_MARGIN),
        ("(-0.258 to +0.978) return; about 10 would", [*runs(0.2)[:2], *runs()[2:]], NO_MARGIN),
        (f"more than {MOST_NEEDED:,} would", [run(0, 0.006), *runs(-0.001)[1:]], NO_MARGIN),
        ("Diverged: 0 seeds before, 1 after.", [Run(0), *runs()[1:]], {}),
        ("It takes 2.00 times the CPU seconds.", runs(cpu_seconds=20.0), {}),
        ("It costs the same.", runs(cpu_seconds=10.5), {}),
    ],
)
def test_a_sentence_says_what_was_found(said: str, after: list[Run], fields: dict[str, object]):
    comparison = compare(after, **fields)
    assert comparison.sentence.startswith("iqn, a <b> c: ")
    assert said in comparison.sentence


def test_sides_of_which_nothing_ended_are_refused():
    lost = [Run(seed) for seed in range(5)]
    with pytest.raises(TrainingDiverged, match="return is in no scores"):
        _ = compare(lost, before=lost).sentence


def test_tables_have_each_metric_and_each_cost():
    comparison = compare(runs(1.0, cpu_seconds=2000.0))
    rows = [tuple(row.values()) for row in comparison.table]
    assert rows == [
        ("return", "higher", "7", "13", "+6 (+4.04 to +7.96)", "3", "5 of 5", "better"),
        ("error", "lower", "2", "1", "-1 (-1 to -1)", "0.5", "5 of 5", "better (uncorrected)"),
        ("share", "near", "0.5", "1.5", "+1 (+1 to +1)", "0.1", "-", "differs (uncorrected)"),
    ]
    costs = [tuple(row.values()) for row in comparison.costs]
    assert costs == [
        ("CPU seconds a seed", "10.0", "2,000.0"),
        ("training steps to return 0.9", "30", "20"),
    ]
    slower = compare(runs(-0.5, peak_memory=2.0**31), curves=("return",)).costs
    assert [tuple(row.values())[1:] for row in slower] == [("1.0", "2.0"), ("30", "never")]
    assert not compare(runs(history={}), before=runs()).costs


def test_caveats_say_what_the_comparison_was():
    text = " ".join(compare(runs(1.0), looks=(4, 5)).caveats)
    assert "Only return decides" in text
    assert "corrected for all looks (after 4, 5 seeds)" in text
    assert "correlate by 0.95, which makes the interval narrower" in text
    text = " ".join(compare([Run(0), *runs()[1:]], is_paired=False).caveats)
    assert "worlds of their own" in text
    assert "diverged counts as worse" in text


def test_a_notebook_shows_text_of_a_user_as_text():
    comparison = compare(runs(1.0))
    assert "a &lt;b&gt; c" in comparison._repr_html_()
    assert "<b> c" not in comparison._repr_html_()
    assert comparison.sentence in repr(comparison)


def test_figures_show_each_metric_and_curve_on_a_scale_where_right_is_better():
    figures = compare([Run(0), *runs(1.0)[1:]]).plots()
    assert figures.keys() == {"differences", "curves"}
    returns, error, _ = figures["differences"].axes
    assert error.xaxis_inverted()
    assert not returns.xaxis_inverted()
    assert len(figures["curves"].axes[0].lines) == 1 + 4  # a mean of five, and those that ended
    for history in ({}, {"return": (np.array([9]), np.array([1.0]))}):  # of one point: no curve
        assert compare(runs(history=history), before=runs()).plots().keys() == {"differences"}


def test_scores_of_a_pair_are_measured_on_one_scale():
    """Each side estimates references by its own episodes, as many as its length allows."""
    scale, other = (-381.0, 200.0), (-347.0, 100.0)

    def side(returns: list[float], scales: list[tuple[float, float]]) -> list[Run]:
        numbers = enumerate(zip(returns, scales, strict=True))
        return [
            Run(
                seed,
                {
                    "return_mean": mean,
                    "score": score(mean, *scale),
                    ORIGIN: scale[0],
                    UNIT: scale[1],
                },
            )
            for seed, (mean, scale) in numbers
        ]

    before = side([-30.0, -29.0, -31.0, -30.0], [scale] * 4)
    after = side([-60.0, -57.0, -64.0, -59.0], [scale, scale, scale, other])
    assert after[3].scores["score"] > before[3].scores["score"]
    rules = compared_rules([Rule("score", "higher", 1.0)])
    comparison = Comparison("iqn", "c", before, after, rules, "score", 1.0, (4,))
    assert {name: each.better_in for name, each in comparison.differences.items()} == {
        "score": 0,
        "return_mean": 0,
    }
    assert comparison.verdict == "worse"
    assert replace(comparison, is_paired=False).differences["score"].each[3] > 0
    by_return = replace(comparison, metric="return_mean", margin=0.0)
    assert "worse: -30 (" in by_return.sentence
