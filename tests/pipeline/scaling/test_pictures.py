"""Tests that the pictures of a sweep are legible and show what they say."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from pipeline.scaling import page
from pipeline.scaling.parallel import parallel_coordinates
from pipeline.scaling.pictures import slices
from pipeline.scaling.records import Point
from pipeline.scaling.result import Dimension, SweepResult
from tests.pipeline.scaling.sweep_trials import HIDDEN, KIND, RATE, confirm, mixed, sweep, trial


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
