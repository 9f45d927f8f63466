"""Tests which metrics of a training become charts in MLflow, and under which names."""

import pytest

from pipeline.tracking.records import curve_rows, drawn_as

ARMS = "error error.active error.random monitor/other loss"
TABLE = [
    # first headline metric, metrics, charts
    ("return", "loss loss/seed/0 reason/timeout", "loss"),
    (
        "cosine_mean",
        "cosine_mean cosine/9 cosine/10 cosine/12 value/3",
        "cosine_mean cosine/9 cosine/10",
    ),
    ("return", "return/agent/1 loss/agent/0 cosine/seed/0/3", "return/agent/1"),
    ("error", ARMS, "error.active error.random loss"),
    ("monitor/error", "monitor/error monitor/other", "monitor/error"),
]


@pytest.mark.parametrize(("first", "metrics", "drawn"), TABLE)
def test_scalars_and_members_of_the_headline_are_charts_and_learners_and_means_of_arms_are_not(
    first: str, metrics: str, drawn: str
):
    rows, hidden = curve_rows([(name, 1, 0.5) for name in metrics.split()], (first, "success"))
    assert [name for name, _, _ in rows] == [f"train/{name}" for name in metrics.split()]
    assert hidden == {f"train/{name}" for name in {*metrics.split()} - {*drawn.split()}}


def test_the_range_of_the_first_headline_metric_is_that_of_its_learners():
    values = {"error/seed/0": 1.0, "error/seed/1": 3.0, "loss/seed/0": 9.0, "error": 2.0}
    table = [(name, step, step * value) for step in (1, 2) for name, value in values.items()]
    rows, _ = curve_rows(table, ("error", "loss"))
    low, high = "range/error_low", "range/error_high"
    assert rows[len(table) :] == [(low, 1, 1.0), (high, 1, 3.0), (low, 2, 2.0), (high, 2, 6.0)]
    rows, _ = curve_rows([*table, ("error.active/seed/0", 1, 0.5)], ("error", "loss"))
    names = [name for name, _, _ in rows[len(table) + 1 :]]
    assert names == ["range/error.active_low", "range/error.active_high"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("train/cosine/3", "train/cosine/03"),
        ("train/return/agent/12", "train/return/agent/12"),
        ("range/return.active_low", "train/return.active_low"),
        ("eval/cosine/3", "eval/cosine/3"),
    ],
)
def test_mlflow_sorts_members_by_index_and_has_ranges_beside_their_mean(name: str, shown: str):
    assert drawn_as(name) == shown
