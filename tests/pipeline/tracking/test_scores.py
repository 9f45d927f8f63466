"""Tests the table of all scores, and the judged ones that alone become metrics."""

import math

from pipeline.judging.gate import judge
from pipeline.storage.params_file import read_params
from pipeline.tracking.scores import gated_scores, score_table
from tests.pipeline.scored_workspace import Workspace

SCORES = {
    "cosine/10": 0.5,
    "cosine/9": 0.25,
    "cosine_mean": 0.375,
    "cosine_mean_low": 0.25,
    "cosine_mean_high": 1 / 3,
    "gap": None,
    "seeds": 4.0,
}


def test_judged_scores_come_first_then_names_in_the_order_of_their_indices():
    assert score_table(SCORES, {"cosine_mean": 0.375}).splitlines() == [
        "score,value,low,high,judged",
        "cosine_mean,0.375,0.25,0.333333,yes",
        "cosine/09,0.25,,,no",
        "cosine/10,0.5,,,no",
        "gap,,,,no",
        "seeds,4,,,no",
    ]
    few = score_table(SCORES | {"seeds": 3.0}, {"cosine_mean": 0.375}).splitlines()
    assert few[1] == "cosine_mean,0.375,,,yes"


def test_scores_with_a_rule_are_judged_and_one_that_is_not_finite_is_nan(space: Workspace):
    space.score(cosine_min=None)
    scores = dict(gated_scores(judge(space.root, "allo", read_params(space.root))))
    assert list(scores) == ["cosine_mean", "cosine_min", "orthogonality"]
    assert math.isnan(scores["cosine_min"])
