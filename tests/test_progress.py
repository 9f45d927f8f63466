"""What a yield says about when its numbers belong."""

import numpy as np
import pytest

from quatrain.progress import Progress, by_seed, history, rows


def progress(step: int, **metrics: np.ndarray) -> Progress:
    return Progress(step, None, metrics)


def test_entries_are_spread_evenly_the_last_belongs_to_the_yield_and_further_axes_are_suffixes():
    loss, cosine = np.array([np.inf, 0.1], np.float32), np.array([[0.1, 0.3]])
    yielded = progress(130, loss=loss, cosine=cosine, none=np.zeros((0, 4)))
    assert rows(yielded, 100) == [
        ("loss", 115, np.inf),
        ("loss", 130, float(np.float32(0.1))),
        ("cosine/0", 130, 0.1),
        ("cosine/1", 130, 0.3),
    ]


@pytest.mark.parametrize("start", [3, 10, 11])
def test_entries_that_do_not_divide_the_steps_raise(start: int):
    message = rf"loss has 3 entries for {10 - start} steps; the number must divide the steps"
    with pytest.raises(ValueError, match=message):
        rows(progress(10, loss=np.zeros(3)), start)


def test_metrics_of_several_learners_keep_their_names_and_gain_each_learners():
    cosine = np.array([[[0.1, 0.2], [0.3, 0.4]]])
    result = by_seed({"cosine": cosine, "cosine_mean": cosine.mean(-1), "late": np.zeros((0, 3))})
    yielded = history(rows(Progress(7, None, result), 0))
    assert {name: values.tolist() for name, (_, values) in yielded.items()} == {
        "cosine/0": [pytest.approx(0.2)],
        "cosine/1": [pytest.approx(0.3)],
        "cosine/seed/0/0": [0.1],
        "cosine/seed/0/1": [0.2],
        "cosine/seed/1/0": [0.3],
        "cosine/seed/1/1": [0.4],
        "cosine_mean": [pytest.approx(0.25)],
        "cosine_mean/seed/0": [pytest.approx(0.15)],
        "cosine_mean/seed/1": [pytest.approx(0.35)],
    }
    assert yielded["cosine_mean"][0].tolist() == [7]
