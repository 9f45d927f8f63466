"""Tests the table of the changes by a promotion."""

from pathlib import Path

import pytest

from pipeline.judging import verdicts
from pipeline.judging.verdicts import ModelVerdict, format_difference
from pipeline.storage.params_file import read_params
from quatrain.baselines import Comparison
from tests.pipeline.scored_workspace import SCORES, Workspace, make_workspace


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return make_workspace(tmp_path)["allo"]


def checked(space: Workspace, model: str = "allo") -> ModelVerdict:
    return verdicts.check(space.root, model, "default")


def test_a_promotion_shows_old_new_difference_and_status(space: Workspace):
    space.score(
        cosine_min=0.9, orthogonality=0.01, orthogonality_low=0.007, orthogonality_high=0.013
    )
    assert verdicts.comparison_table([checked(space)]) == (
        "model    preset    metric         old     new     difference        status\n"
        "-------  --------  -------------  ------  ------  ----------------  --------\n"
        "allo     default   cosine_mean    0.9950  0.9950  0.0000            ok\n"
        "allo     default   cosine_min     0.9800  0.9000  -0.0800           worse\n"
        "allo     default   orthogonality  0.0500  0.0100  -0.0400 ± 0.0030  ok"
    )


def test_several_models_are_in_one_table(space: Workspace):
    table = verdicts.comparison_table([checked(space), checked(space, "iqn")])
    assert [line.split()[0] for line in table.splitlines()[2:]] == ["allo"] * 3 + ["iqn"] * 3


def test_a_first_baseline_has_no_difference(space: Workspace):
    space.files.baseline.unlink()
    space.score()
    assert "cosine_min     -      0.9800  -             no baseline\n" in verdicts.comparison_table(
        [checked(space)]
    )


def test_a_verdict_carries_the_scores_that_it_judged(space: Workspace):
    space.score(cosine_min=0.97)
    assert checked(space).scores == SCORES["allo"] | {"cosine_min": 0.97}
    assert (
        verdicts.write(space.root, "allo", read_params(space.root)).scores == checked(space).scores
    )


def test_a_stale_verdict_carries_no_scores(space: Workspace):
    space.edit_verdict(scores_sha256="0" * 64)
    assert checked(space).scores == {}
    assert [comparison.difference for comparison in checked(space).comparisons] == [None]


@pytest.mark.parametrize(
    ("difference", "half", "text"),
    [
        (0.0, None, "0.0000"),
        (-1e-9, None, "0.0000"),
        (0.25, None, "+0.2500"),
        (-0.25, 0.03, "-0.2500 ± 0.0300"),
        (None, None, "-"),
    ],
)
def test_a_difference_is_shown_with_its_sign(
    difference: float | None, half: float | None, text: str
):
    assert format_difference(Comparison("accuracy", "ok", 0.5, 0.5, difference, half)) == text
