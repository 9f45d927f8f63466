"""Tests which metrics of a training become charts in MLflow."""

from pipeline.tracking.records import chart_rows, padded


def names(*metrics: str, headline: tuple[str, ...] = ("return", "success")) -> list[str]:
    return [name for name, _, _ in chart_rows([(name, 1, 0.5) for name in metrics], headline)]


def test_scalars_are_charts_and_learners_are_not():
    assert names("loss", "loss/seed/0", "loss/seed/1", "reason/timeout") == ["loss"]


def test_members_of_the_first_headline_metric_sort_by_their_index():
    headline = ("cosine_mean", "loss")
    metrics = ("cosine/10", "cosine/9", "eigenvalue/3", "cosine_mean", "cosine/seed/0/3")
    shown = sorted(names(*metrics, headline=headline))
    assert shown == ["cosine/09", "cosine/10", "cosine_mean"]
    assert names("cosine/12", "cosine/300", headline=headline) == []
    agents = ("return/agent/0", "return/agent/1", "loss/agent/0", "success/agent/0")
    assert names(*agents) == ["return/agent/00", "return/agent/01"]


def test_arms_replace_their_mean_and_a_headline_metric_may_have_a_slash():
    headline = ("monitor/error", "surprise")
    metrics = ("monitor/error", "monitor/error.active", "monitor/error.random", "monitor/other")
    assert names(*metrics, headline=headline) == ["monitor/error.active", "monitor/error.random"]


def test_the_range_of_the_first_headline_metric_is_that_of_its_learners():
    values = {"return": 2.0, "return/seed/0": 1.0, "return/seed/1": 3.0, "loss/seed/0": 9.0}
    table = [(name, step, step * value) for step in (1, 2) for name, value in values.items()]
    drawn = {(name, step): value for name, step, value in chart_rows(table, ("return", "loss"))}
    assert drawn == {
        ("return", 1): 2.0,
        ("return", 2): 4.0,
        ("return_low", 1): 1.0,
        ("return_low", 2): 2.0,
        ("return_high", 1): 3.0,
        ("return_high", 2): 6.0,
    }


def test_padding_changes_indices_alone():
    shown = [padded(name) for name in ("cosine/3", "return/agent/12", "loss", "field.active/2")]
    assert shown == ["cosine/03", "return/agent/12", "loss", "field.active/02"]
