"""Tests the report: the verdict first, everything else below it."""

import re
from pathlib import Path

import pytest

from pipeline import report
from pipeline.judging import verdicts
from pipeline.reporting import sections
from pipeline.reporting.marks import as_text
from pipeline.reporting.sections import Result, plain
from pipeline.runtime.errors import ArtifactError
from pipeline.storage import artifacts
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.scored_workspace import SCORES, Workspace, make_workspace

COUNTS = {model: len(verdicts.rules_of(model, "default")) for model in MODELS}
PNG = (ROOT / "docs" / "iqn_standing.png").read_bytes()


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return make_workspace(tmp_path)["allo"]


def page(space: Workspace) -> str:
    return report.page(report.read_all(space.root, "default"), as_text)


def section(space: Workspace) -> str:
    """Returns the section of one model."""
    return sections.model_section(
        Result(verdicts.check(space.root, space.model, "default"), "a" * 64, [], None), as_text
    )


def row(space: Workspace, metric: str) -> list[str]:
    """Returns the cells of a judged metric."""
    matches = re.search(rf"^\| {re.escape(metric)} \| (.+) \|$", section(space), re.MULTILINE)
    assert matches
    return matches[1].split(" | ")


def draw_pictures(space: Workspace, *names: str) -> None:
    plots = space.root / "reports" / space.model / "plots"
    plots.mkdir()
    for name in names:
        (plots / name).write_bytes(PNG)


def test_the_verdict_comes_first(space: Workspace):
    count = sum(COUNTS.values())
    assert page(space).startswith(
        f"# Passed: preset default\n\n**All {count} scores hold their baselines.**\n\n| model |"
    )
    space.score(cosine_min=0.5)
    assert page(space).startswith(
        f"# Broken: preset default\n\n**1 of {count} scores broke.**\n\n"
        "* **allo**: cosine_min 0.5 is 0.48 worse than baseline 0.98 "
        "(higher is better, tolerance 0.03)\n\n| model |"
    )


def test_a_better_score_is_offered_for_promotion_unless_another_is_broken(space: Workspace):
    space.score(cosine_mean=1.02)
    offer = "1 better than the baseline: `make promote` would store that."
    assert f" scores hold their baselines.**\n\n{offer}\n\n| model |" in page(space)
    space.score(cosine_mean=1.02, cosine_min=0.5)
    assert offer not in page(space)


def test_each_model_has_a_row_that_links_to_its_section(space: Workspace):
    space.score(orthogonality=0.9)
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (.+?) \| (\S+)", page(space), re.MULTILINE)
    summaries = {model: f"{count} of {count} hold" for model, count in COUNTS.items()} | {
        "allo": "**1 of 3 broken**"
    }
    assert rows == [
        (model, model, summaries[model], verdicts.rules_of(model, "default")[0].metric)
        for model in MODELS
    ]
    assert re.findall(r"^## (.+)$", page(space), re.MULTILINE) == list(MODELS)


def test_a_score_is_shown_with_its_baseline_and_references(space: Workspace):
    assert row(space, "cosine_mean") == [
        "0.9950",
        "0.9950",
        "0.0000",
        "`├────────────────────●┤`<br>floor_untrained 0.120 … ceiling_truth 1.000",
        "ok",
    ]
    space.score(cosine_min=0.5)
    assert row(space, "cosine_min") == [
        "0.5000",
        "0.9800",
        "-0.4800",
        "`├◀─────────┼──────────┤`<br>worse 0.950 … better 1.010",
        "**worse**",
    ]


def test_all_rules_and_references_are_listed(space: Workspace):
    assert (
        "| cosine_mean | higher | 0.005 | 0.99 | "
        "floor_constant 0.090<br>floor_random 0.080<br>floor_untrained 0.120 | "
        "ceiling_truth 1.000 |"
    ) in section(space)
    assert "| orthogonality | lower | 0.1 | - | - | - |" in section(space)


def test_intervals_of_score_baseline_and_difference_are_shown(space: Workspace):
    space.edit_entry("orthogonality", interval=[0.01, 0.09])
    space.score(orthogonality=0.06, orthogonality_low=0.03, orthogonality_high=0.09)
    assert row(space, "orthogonality")[:3] == [
        "0.0600 (0.0300 to 0.0900)",
        "0.0500 (0.0100 to 0.0900)",
        "+0.0100 ± 0.0500",
    ]
    assert "| orthogonality | 0.0600 (0.0300 to 0.0900) |\n" in section(space)
    assert "orthogonality_low" not in page(space)


def test_all_scores_are_listed_in_the_order_of_their_numbers(space: Workspace):
    names = re.findall(r"^\| (\S+) \| [\d.]+ \|$", section(space), re.MULTILINE)
    assert set(names) == set(SCORES["allo"])
    assert names.index("cosine/2") + 1 == names.index("cosine/10")


def test_run_and_baseline_are_named(space: Workspace):
    key = "a" * 64
    assert f"search any tracking server for `tags.\"quatrain.run_key\" = '{key}'`" in page(space)
    assert f"runs?searchFilter=tags.%22quatrain.run_key%22%20%3D%20%27{key}%27)" in page(space)
    assert "Passed: 3 of 3 scores hold. Baseline: 2026-01-02, commit abc123, 1 seed.\n" in page(
        space
    )


def test_a_lowered_baseline_shows_the_reason():
    text = sections.baseline_origin(
        {"date": "2026-01-02", "commit": "f00", "seeds": 3, "why": "smaller network"}
    )
    assert (
        text == "Baseline: 2026-01-02, commit f00, 3 seeds; stored although worse: smaller network."
    )


def test_scores_without_a_baseline_are_shown(space: Workspace):
    space.files.baseline.unlink()
    space.score()
    assert page(space).count("* **allo**: preset 'default' has no baseline yet\n") == 1
    assert "**Broken:** 3 of 3 scores. Baseline: none." in page(space)
    assert row(space, "cosine_mean") == ["0.9950", "-", "-", "-", "**no baseline**"]


def test_scores_that_were_not_judged_are_not_shown(space: Workspace):
    space.files.verdict.unlink()
    assert "* **allo**: allo was not evaluated yet; run `make repro`" in page(space).replace(
        "\\", ""
    )
    assert row(space, "-") == ["-", "-", "-", "-", "**missing**"]
    assert "All scores of allo" not in page(space)
    assert "All scores of iqn" in page(space)


def test_unmeasured_speed_names_the_command(space: Workspace):
    assert "Speed: not measured yet; `make bench BENCH=allo` does." in section(space)


def test_plots_are_linked_relative_to_the_page(space: Workspace):
    draw_pictures(space, "vectors.png", "cosine.png", "notes.txt")
    matches = re.findall(r"!\[(\w+)\]\((\S+)\)", page(space))
    assert matches == [("cosine", "allo/plots/cosine.png"), ("vectors", "allo/plots/vectors.png")]
    assert all((space.root / "reports" / path).exists() for _, path in matches)
    assert "<summary>2 pictures</summary>" in page(space)
    assert "**vectors**\n\n![vectors]" in page(space)
    assert page(space).count("No plots.") == len(MODELS) - 1


def test_a_plot_with_special_characters_is_linked(space: Workspace):
    draw_pictures(space, "a b(1).png")
    assert "![a b(1)](allo/plots/a%20b%281%29.png)" in page(space)
    report.report()
    assert 'alt="a b(1)"' in (space.root / "reports" / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("cosine_mean of `make`", r"cosine_mean of \`make\`"),
        ("a|b *c* [d](e) ~f~", r"a\|b \*c\* \[d\](e) \~f\~"),
        ("_emphasised_ and __dunder__", r"\_emphasised\_ and \_\_dunder\_\_"),
        ("<script>alert(1)</script> &amp;", "&lt;script&gt;alert(1)&lt;/script&gt; &amp;amp;"),
        ("two\n\n# lines", "two # lines"),
    ],
)
def test_text_from_a_file_is_escaped(text: str, shown: str):
    assert plain(text) == shown


def test_the_same_results_give_the_same_bytes(space: Workspace):
    draw_pictures(space, "vectors.png")
    pages = [space.root / "reports" / name for name in ("report.md", "report.html")]
    report.report()
    first = [path.read_bytes() for path in pages]
    report.report()
    assert [path.read_bytes() for path in pages] == first
    assert not re.search(re.escape(str(space.root)).encode(), b"".join(first))


@pytest.mark.parametrize("damaged", ["baseline", "learner", "picture", "speed"])
def test_a_damaged_file_gives_no_page(space: Workspace, damaged: str):
    match damaged:
        case "baseline":
            space.edit_baseline("{")
        case "learner":
            (space.root / "models" / "allo" / artifacts.MANIFEST).unlink()
        case "picture":
            draw_pictures(space, "vectors.png")
            (space.root / "reports" / "allo" / "plots" / "vectors.png").write_bytes(PNG[:20])
        case "speed":
            (space.root / "benchmarks" / "results").mkdir(parents=True)
            (space.root / "benchmarks" / "results" / "allo.json").write_text("{")
    with pytest.raises(ArtifactError):
        report.report()
    assert not list((space.root / "reports").glob("report.*"))
