"""One page for a person: the verdict first, everything else below it."""

import re
from pathlib import Path

import pytest

from pipeline import artifacts, report, verdicts
from pipeline.artifacts import ArtifactError
from tests.pipeline.scored_workspace import SCORES, Workspace, make_workspace


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return make_workspace(tmp_path)["allo"]


def page(space: Workspace) -> str:
    return report.page(space.root, "default")


def section(space: Workspace) -> str:
    """The part of one model."""
    return report.section(space.root, verdicts.check(space.root, space.model, "default"))


def test_the_verdict_comes_first(space: Workspace):
    assert page(space).startswith(
        "# Passed: preset default\n\nEvery judged score holds its baseline.\n\n## allo: passed\n"
    )
    space.score(cosine_min=0.5)
    assert page(space).startswith(
        "# Broken: preset default\n\nNot every judged score holds its baseline:\n\n"
        "* **allo**: cosine_min 0.5 is 0.48 worse than baseline 0.98 (higher is better, tolerance 0.03)\n\n"
        "## allo: broken\n"
    )


def test_a_score_stands_between_its_goal_floors_and_ceilings(space: Workspace):
    assert (
        "| cosine_mean | 0.9950 | 0.9950 | 0.005 | higher | 0.9900 | "
        "floor_constant 0.090<br>floor_random 0.080<br>floor_untrained 0.120 | ceiling_truth 1.000 | ok |"
    ) in page(space)
    assert "| orthogonality | 0.0500 | 0.0500 | 0.1 | lower | - | - | - | ok |" in page(space)


def test_a_broken_status_is_bold(space: Workspace):
    space.score(orthogonality=0.9)
    assert "| - | - | - | **worse** |" in page(space)


def test_any_metric_with_an_interval_shows_it_in_its_row(space: Workspace):
    space.score(orthogonality_low=0.04, orthogonality_high=0.06)
    assert "| orthogonality | 0.0500 (0.0400 to 0.0600) | 0.0500 | 0.1 |" in page(space)
    assert "| orthogonality | 0.0500 (0.0400 to 0.0600) |\n" in page(space)
    assert "orthogonality_low" not in page(space)


def test_all_scores_are_listed_in_the_order_of_their_numbers(space: Workspace):
    names = re.findall(r"^\| (\S+) \| [\d.]+ \|$", section(space), re.MULTILINE)
    assert set(names) == set(SCORES["allo"])
    assert names.index("cosine/2") + 1 == names.index("cosine/10")


def test_run_and_baseline_are_named(space: Workspace):
    assert f"search for `tags.\"quatrain.run_key\" = '{'a' * 64}'`" in page(space)
    assert "Baseline: 2026-01-02, commit abc123, 1 seed." in page(space)


def test_a_baseline_that_was_lowered_says_why():
    told = report.origin({"date": "2026-01-02", "commit": "f00", "seeds": 3, "why": "smaller network"})
    assert told == "Baseline: 2026-01-02, commit f00, 3 seeds; stored although worse: smaller network."


def test_without_baseline_the_page_says_so(space: Workspace):
    space.files.baseline.unlink()
    space.score()
    assert page(space).count("* **allo**: preset 'default' has no baseline yet\n") == 1
    assert "Baseline: none." in page(space)


def test_pictures_are_linked_from_where_the_page_is(space: Workspace):
    plots = space.root / "reports" / "allo" / "plots"
    plots.mkdir()
    for name in ("vectors.png", "cosine.png", "notes.txt"):
        (plots / name).touch()
    found = re.findall(r"!\[(\w+)\]\((\S+)\)", page(space))
    assert found == [("cosine", "allo/plots/cosine.png"), ("vectors", "allo/plots/vectors.png")]
    assert all((space.root / "reports" / path).exists() for _, path in found)


def test_the_same_results_give_the_same_page(space: Workspace):
    report.report()
    first = (space.root / "reports" / "report.md").read_bytes()
    report.report()
    assert (space.root / "reports" / "report.md").read_bytes() == first


def test_a_damaged_learner_or_baseline_gives_no_page(space: Workspace):
    space.edit_baseline("{")
    with pytest.raises(ArtifactError):
        report.report()
    space.set_baseline()
    (space.root / "models" / "allo" / artifacts.MANIFEST).unlink()
    with pytest.raises(ArtifactError):
        report.report()
    assert not (space.root / "reports" / "report.md").exists()
