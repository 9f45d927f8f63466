"""Tests which metrics of a training become charts in MLflow, and under which names."""

import pytest

from pipeline.tracking.records import charts, drawn_as, ranges

ARMS = {"error", "error.active", "error.random", "monitor/other", "loss"}
TABLE = [
    # headline, metrics, charts
    (("return",), {"loss", "loss/seed/0", "reason/timeout"}, {"loss"}),
    (("cosine_mean",), {"cosine_mean", "cosine/9", "cosine/12", "value/3"}, {"cosine/9"}),
    (("return",), {"return/agent/1", "loss/agent/0", "cosine/seed/0/3"}, {"return/agent/1"}),
    (("error",), ARMS, {"error.active", "error.random", "loss"}),
    (("monitor/error",), {"monitor/error", "monitor/other"}, {"monitor/error"}),
]


@pytest.mark.parametrize(("headline", "metrics", "drawn"), TABLE)
def test_scalars_and_members_of_the_headline_are_charts_and_learners_and_means_of_arms_are_not(
    headline: tuple[str, ...], metrics: set[str], drawn: set[str]
):
    assert charts(metrics, headline) == drawn | (metrics & {"cosine_mean"})


def test_the_range_of_the_first_headline_metric_is_that_of_its_learners():
    values = {"error/seed/0": 1.0, "error/seed/1": 3.0, "loss/seed/0": 9.0, "error": 2.0}
    table = [(name, step, step * value) for step in (1, 2) for name, value in values.items()]
    low_and_high = {("error_low", 1): 1.0, ("error_low", 2): 2.0}
    low_and_high |= {("error_high", 1): 3.0, ("error_high", 2): 6.0}
    drawn = ranges(table, ("error", "loss"))
    assert {(name, step): value for name, step, value in drawn} == low_and_high
    of_arm = [("error.active/seed/0", 1, 0.5)]
    drawn = ranges([*table, *of_arm], ("error", "loss"))
    assert [name for name, _, _ in drawn] == ["error.active_low", "error.active_high"]


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
