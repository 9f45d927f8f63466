"""Tests the report: the verdict first, everything else below it."""

import re

import numpy as np
import pytest
from matplotlib.figure import Figure

from pipeline.judging import verdicts
from pipeline.reporting import sections
from pipeline.reporting.marks import as_text
from pipeline.reporting.sections import Result, plain
from pipeline.stages import report
from pipeline.storage.figures import encode, png
from quatrain.animation import Animation
from quatrain.errors import DataError
from quatrain.registry import MODELS
from tests.pipeline.fixture_types import Patch
from tests.pipeline.scored_workspace import SCORES, Workspace

COUNTS = {model: len(verdicts.rules_of(model, "default")) for model in MODELS}
RUNS = "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning"
PNG = png(Figure(figsize=(1, 1)))


def page(space: Workspace) -> str:
    return report.page(report.read_all(space.root, "default"), as_text)


def section(space: Workspace) -> str:
    """Returns the section of one model."""
    verdict = verdicts.check(space.root, space.model, "default")
    return sections.model_section(Result(verdict, "a" * 64, [], None, "some CPU"), as_text)


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


def test_the_verdict_comes_first_then_a_row_per_model(space: Workspace):
    count = sum(COUNTS.values())
    passed = f"# Passed: preset default\n\n**All {count} scores hold their baselines.**\n\n"
    offer = "1 better than the baseline: `make promote` would store that.\n\n"
    assert page(space).startswith(f"{passed}| model |")
    assert "\n\nMachine: AMD (family 25, model 1), 2 threads.\n" in page(space)
    space.score(cosine_mean=1.02)
    assert page(space).startswith(f"{passed}{offer}| model |")
    space.score(cosine_mean=1.02, cosine_min=0.5)
    broken = page(space)
    assert broken.startswith(
        f"# Broken: preset default\n\n**1 of {count} scores broke.**\n\n"
        "* **allo**: cosine_min 0.5 is 0.48 worse than baseline 0.98 "
        "(higher is better, tolerance 0.03)\n\n| model |"
    )
    rows = re.findall(r"^\| \[(\w+)\]\(#(\w+)\) \| (.+?) \| (\S+)", broken, re.MULTILINE)
    summaries = {model: f"{count} of {count} hold" for model, count in COUNTS.items()}
    summaries["allo"] = "**1 of 3 broken**"
    assert rows == [
        (model, model, summaries[model], verdicts.rules_of(model, "default")[0].metric)
        for model in MODELS
    ]
    assert re.findall(r"^## (.+)$", broken, re.MULTILINE) == list(MODELS)


def test_a_section_shows_scores_rules_references_run_and_baseline(space: Workspace):
    mark = "`├────────────────────●┤`<br>untrained network 0.120 … true vectors 1.000"
    assert row(space, "cosine_mean") == ["0.9950", "0.9950", "0.0000", mark, "ok"]
    key = "a" * 64
    for part in (
        "Passed: 3 of 3 scores hold. Baseline: 2026-01-02, commit abc123, 1 seed.\n",
        f"search any tracking server for `tags.\"quatrain.run_key\" = '{key}'`",
        f"{RUNS}&searchFilter=tags.%22quatrain.run_key%22%20%3D%20%27{key}%27)",
        "| cosine_mean | higher | 0.005 | 0.99 | "
        "untrained network 0.120<br>constant 0.090<br>random numbers 0.080 | true vectors 1.000 |",
        "* **cosine_mean**: agreement of the learned with the true eigenvectors",
        "| orthogonality | lower | 0.1 | - | - | - |",
        "Speed: not measured yet; `make bench BENCH=allo` does.",
    ):
        assert part in page(space)
    names = re.findall(r"^\| (\S+) \| [\d.]+ \|$", section(space), re.MULTILINE)
    assert set(names) == set(SCORES["allo"])
    assert names.index("cosine/2") + 1 == names.index("cosine/10")

    space.score(cosine_min=0.5)
    # The line ends at 1, where cosines end.
    mark = "`├◀───────────┼────────┤`<br>worse 0.950 … better 1.000"
    assert row(space, "cosine_min") == ["0.5000", "0.9800", "-0.4800", mark, "**worse**"]
    lowered = {"date": "2026-01-02", "commit": "f00", "seeds": 3, "why": "smaller network"}
    text = "Baseline: 2026-01-02, commit f00, 3 seeds; stored although worse: smaller network."
    assert sections.baseline_origin(lowered) == text


def test_intervals_of_score_baseline_and_difference_are_shown(space: Workspace):
    space.set_baseline(orthogonality_low=0.01, orthogonality_high=0.09, seeds=5.0)
    cells = ["0.0600 (0.0300 to 0.0900)", "0.0500 (0.0100 to 0.0900)"]
    ends = {"orthogonality_low": 0.03, "orthogonality_high": 0.09}
    space.score(orthogonality=0.06, **ends, seeds=5.0)
    assert row(space, "orthogonality")[:3] == [*cells, "+0.0100 ± 0.0500"]
    assert "| orthogonality | 0.0600 (0.0300 to 0.0900) |\n" in section(space)
    assert "orthogonality_low" not in page(space)


@pytest.mark.parametrize("seeds", [1.0, 2.0, 3.0])
def test_fewer_than_four_seeds_show_no_interval(space: Workspace, seeds: float):
    space.set_baseline(orthogonality_low=0.01, orthogonality_high=0.09, seeds=seeds)
    space.score(orthogonality=0.06, orthogonality_low=0.03, orthogonality_high=0.09, seeds=seeds)
    assert row(space, "orthogonality")[:3] == ["0.0600", "0.0500", "+0.0100"]
    assert "| orthogonality | 0.0600 |\n" in section(space)


def test_scores_are_shown_without_a_baseline_but_not_unjudged(space: Workspace):
    space.files.baseline.unlink()
    space.score()
    assert page(space).count("* **allo**: preset 'default' has no baseline yet\n") == 1
    lacking = "**No baseline yet:** `make promote MODELS=allo` stores one. Baseline: none."
    assert lacking in page(space)
    assert page(space).startswith("# No baseline yet: preset default\n\n**3 of ")
    assert "broke" not in page(space)
    assert row(space, "cosine_mean") == ["0.9950", "-", "-", "-", "**no baseline**"]
    space.files.verdict.unlink()
    why = "* **allo**: allo was not evaluated yet; run `make repro`"
    assert why in page(space).replace("\\", "")
    assert row(space, "-") == ["-", "-", "-", "-", "**missing**"]
    assert "All scores of allo" not in page(space)
    assert "All scores of iqn" in page(space)


def test_plots_are_linked_relative_to_the_page(space: Workspace):
    draw_pictures(space, "vectors.png", "a b(1).png", "notes.txt")
    frames = np.arange(2, dtype=np.uint8)[:, None, None] + np.zeros((2, 3, 4), np.uint8)
    moving = {"film": Animation(frames, np.zeros((2, 3), np.uint8), 80, "Detail: *how*")}
    figure = Figure(figsize=(1, 1))
    figure.set_label("The task")
    plots = space.root / "reports" / space.model / "plots"
    for name, data in encode({"z": figure} | moving).items():
        (plots / name).write_bytes(data)
    matches = re.findall(r"!\[(.+)\]\((\S+)\)", page(space))
    special = ("a b(1)", "allo/plots/a%20b%281%29.png")
    # Those that say no place, by name; then in the order of the story.
    assert matches[:2] == [special, ("vectors", "allo/plots/vectors.png")]
    assert [name for name, _ in matches[2:]] == ["z", "film"]
    assert "<summary>4 pictures</summary>" in page(space)
    assert "**vectors**\n\n![vectors]" in page(space)
    assert "**The task**\n\n![z]" in page(space)
    assert r"**Detail**: \*how\*" in page(space)
    assert page(space).count("No plots.") == len(MODELS) - 1


def test_text_from_a_file_is_escaped():
    assert plain("cosine_mean of `make`\n\n# x") == r"cosine_mean of \`make\` # x"
    assert plain("a|b *c* [d](e) ~f~ _g_ __h__") == r"a\|b \*c\* \[d\](e) \~f\~ \_g\_ \_\_h\_\_"
    assert plain("<script>a</script> &amp;") == "&lt;script&gt;a&lt;/script&gt; &amp;amp;"


def test_the_same_results_give_the_same_bytes(space: Workspace, uri: str, monkeypatch: Patch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    draw_pictures(space, "a b(1).png")
    pages = [space.root / "reports" / name for name in ("report.md", "report.html")]
    report.report()
    first = [path.read_bytes() for path in pages]
    report.report()
    assert [path.read_bytes() for path in pages] == first
    assert str(space.root).encode() not in b"".join(first)
    assert b'alt="a b(1)"' in first[1]


@pytest.mark.parametrize(
    "damaged",
    ["baselines/allo.json", "reports/allo/plots/vectors.png", "benchmarks/results/allo.json"],
)
def test_a_damaged_file_gives_no_page(space: Workspace, damaged: str):
    (space.root / damaged).parent.mkdir(parents=True, exist_ok=True)
    (space.root / damaged).write_text("{")
    with pytest.raises(DataError):
        report.report()
    assert not list((space.root / "reports").glob("report.*"))
