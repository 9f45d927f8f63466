"""Tests the report: the verdict first, everything else below it."""

import re
import shutil
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from pipeline.judging.gate import rules_of
from pipeline.judging.promotion import promote
from pipeline.judging.scores import NotFresh
from pipeline.reporting import scores_page, sections
from pipeline.reporting.marks import mark
from pipeline.reporting.scores_page import BEGIN, END
from pipeline.reporting.stills import stills_of
from pipeline.stages import report
from pipeline.storage.figures import encode, png
from pipeline.storage.params_file import read_params
from quatrain.animation import Animation
from quatrain.baselines import Rule, entry_of
from quatrain.errors import DataError
from quatrain.judgement import Line, judge
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.scored_workspace import SCORES, Workspace

COUNTS = {model: len(rules_of(model, "default")) for model in MODELS}
RUNS = "http://127.0.0.1:5000/#/experiments?workflowType=machine_learning"
PNG = png(Figure(figsize=(1, 1)))


def page(space: Workspace, whole: bool = False) -> str:
    return sections.page(sections.read_all(space.root, read_params(space.root)), whole)


def section(text: str, model: str = "allo") -> str:
    """Returns the section of one model of a page."""
    return text.partition(f"\n## {model}\n")[2].partition("\n## ")[0]


def row(text: str, metric: str) -> list[str]:
    """Returns the cells of a judged metric."""
    pattern = rf"^\| \S* ?\| {re.escape(metric)} \| (.+) \|$"
    matches = re.search(pattern, section(text, "Scores"), re.MULTILINE)
    assert matches
    return matches[1].split(" | ")


def draw_pictures(space: Workspace, **pictures: Any) -> None:
    plots = space.root / "reports" / space.model / "plots"
    plots.mkdir(exist_ok=True)
    for name, data in encode(pictures).items():
        (plots / name).write_bytes(data)


def test_the_verdict_comes_first_then_a_card_per_model(space: Workspace):
    count = sum(COUNTS.values())
    passed = f"# Passed: preset default\n\n**Passed**: all {count} scores hold their baselines."
    text = page(space)
    assert text.startswith(f'{passed}\n\n<div class="cards">')
    assert text.count("Machine: AMD (family 25, model 1), 2 threads.") == 1
    space.score(cosine_mean=1.02)
    offer = " 1 better: `make promote` would store that.\n\n"
    assert page(space).startswith(f"{passed}{offer}<div")
    space.score(cosine_mean=1.02, cosine_min=0.5)
    broken = page(space)
    assert broken.startswith(
        f"# Worse: preset default\n\n**Worse**: 1 of {count} scores.\n\n"
        "* **allo**: cosine_min 0.5 is 0.48 worse than baseline 0.98 "
        "(higher is better, tolerance 0.03)\n\n<div"
    )
    cards = re.findall(r"\[(\w+)\]\(#(\w+)\): (.+?)<br>(\S+) ", broken)
    summaries = {model: f"{count} of {count} hold" for model, count in COUNTS.items()}
    summaries["allo"] = "**1 of 3 broken**"
    assert cards == [
        (model, model, summaries[model], rules_of(model, "default")[0].metric) for model in MODELS
    ]
    assert re.findall(r"^## (.+)$", broken, re.MULTILINE) == ["Scores", *MODELS]


def test_a_section_shows_scores_rules_references_run_and_baseline(space: Workspace):
    text = page(space)
    mark = "`├────────────────────●┤`<br>untrained network 0.120 … true vectors 1.000"
    assert row(text, "cosine_mean") == ["0.9950", "0.9950", "0.0000", mark, "ok"]
    key = "a" * 64
    for part in (
        "Scores: 3 of 3 hold. Baseline: 2026-01-02, commit abc123, 1 seed.\n",
        f"search any tracking server for `tags.\"quatrain.run_key\" = '{key}'`",
        f"{RUNS}&searchFilter=tags.%22quatrain.run_key%22%20%3D%20%27{key}%27)",
        "| cosine_mean | higher | 0.005 | 0.99 | "
        "untrained network 0.120<br>constant 0.090<br>random numbers 0.080 | true vectors 1.000 |",
        "* **cosine_mean**: agreement of the learned with the true eigenvectors",
        "| orthogonality | lower | 0.1 | - | - | - |",
    ):
        assert part in section(text)
    names = re.findall(r"^\| (\S+) \| [\d.]+ \|$", section(text), re.MULTILINE)
    gated = {rule.metric for rule in rules_of("allo", "default")}
    assert set(names) == set(SCORES["allo"]) - gated
    assert names.index("cosine/2") + 1 == names.index("cosine/10")
    lowered = {"date": "2026-01-02", "commit": "f00", "seeds": 3, "why": "smaller network"}
    said = "Baseline: 2026-01-02, commit f00, 3 seeds; why: smaller network."
    assert sections.baseline_origin(lowered) == said


def test_scores_are_shown_without_a_baseline_but_not_if_they_are_stale(space: Workspace):
    space.stored.unlink()
    text = page(space)
    assert text.startswith("# No baseline yet: preset default\n\n**No baseline yet**: 3 of ")
    assert text.count("* **allo**: preset 'default' has no baseline yet\n") == 1
    lacking = "**no baseline yet**. `make promote MODELS=allo` stores one. Baseline: none."
    assert lacking in section(text)
    assert row(text, "cosine_mean") == ["0.9950", "-", "-", "-", "**no baseline**"]
    space.scores.unlink()
    text = page(space)
    why = "* **allo**: allo was not evaluated yet; run `make repro`"
    assert why.replace("`", r"\`") in text
    assert row(text, "-") == ["-", "-", "-", "-", "**missing**"]
    assert "Scores of allo that are not judged" not in text
    assert "Scores of iqn that are not judged" in text


def test_a_model_that_is_not_here_has_the_commits_scores_and_still(
    space: Workspace, uri: str, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    draw_pictures(space, a=Figure(figsize=(1, 1)))
    report.report()
    still = space.root / "reports" / "cards" / "allo.webp"
    before = still.read_bytes()
    before_it_went = page(space)
    shutil.rmtree(space.weights)
    shutil.rmtree(space.root / "reports" / "allo" / "plots")
    report.report()
    assert still.read_bytes() == before
    text = page(space)
    assert "![allo](cards/allo.webp)" in text
    assert text.startswith("# Passed: preset default\n")
    assert row(text, "cosine_mean")[-1] == "ok"
    assert text == before_it_went


def test_a_section_says_what_changed_and_which_champions_there_were(space: Workspace):
    assert "What changed since the baseline:\n\n* nothing that is recorded" in section(page(space))
    assert "champions" not in section(page(space))
    space.score(cosine_mean=0.999)
    promote(space.root, space.root, ["allo"], read_params(space.root), None)
    text = section(page(space))
    assert "<summary>2 champions, the newest first</summary>" in text
    assert re.findall(r"^\| (2\S+) \| .* \| (\S+) \|$", text, re.MULTILINE)[1:] == [
        ("2026-01-02", "0.9950")
    ]


def test_a_presets_report_has_the_models_that_were_evaluated(space: Workspace):
    space.score("smoke")
    params = read_params(space.root, "smoke")
    (space.root / "reports" / "iqn" / "scores.json").unlink()
    models = [result.judgement.model for result in sections.read_all(space.root, params)]
    assert models == [model for model in MODELS if model != "iqn"]


def test_plots_are_linked_relative_to_the_page_in_the_order_of_the_story(space: Workspace):
    frames = np.zeros((2, 3, 4, 3), np.uint8)
    frames[1] = 255
    moving = Animation(frames, 80, "Detail: *how*")
    figure = Figure(figsize=(1, 1))
    figure.set_label("Is it hard? Yes: it is")
    draw_pictures(space, z=figure, film=moving)
    plots = space.root / "reports" / space.model / "plots"
    for name in ("vectors.png", "a b(1).png"):  # of an earlier version: they say no place
        (plots / name).write_bytes(PNG)
    (plots / "notes.txt").write_bytes(PNG)
    assert re.findall(r"!\[([^]]+)\]\((\S+?)\)", page(space)) == [("allo", "cards/allo.webp")]
    text = page(space, whole=True)
    matches = re.findall(r"!\[([^]]+)\]\((\S+?)\)", text)
    assert matches[0] == ("allo", "allo/plots/a%20b%281%29.png")
    assert [name for name, _ in matches[1:]] == ["vectors", "z", "film"]
    assert "<summary>3 pictures</summary>" in text
    assert "**vectors**\n\n![vectors]" in text
    assert "**Is it hard?** Yes: it is\n\n![z]" in text
    assert r"**Detail**: \*how\*" in text


def test_a_still_is_the_last_frame_of_a_film(space: Workspace):
    frames = np.zeros((2, 30, 960, 3), np.uint8)
    frames[1] = 255
    draw_pictures(space, film=Animation(frames, 80))
    (still,) = stills_of(space.root / "reports", {"allo": "allo/plots/film.gif"}).values()
    picture = np.asarray(Image.open(BytesIO(still)))
    assert picture.shape == (15, 480, 3)
    assert picture.min() > 250


def test_the_same_results_give_the_same_bytes(
    space: Workspace, uri: str, monkeypatch: Patch, capsys: Capture
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    draw_pictures(space, a=Figure(figsize=(1, 1)))
    names = ("report.md", "report.html", "cards/allo.webp")
    pages = [space.root / "reports" / name for name in names]
    report.report()
    assert "report: reports/report.html, passed, " in capsys.readouterr().out
    first = [path.read_bytes() for path in pages]
    space.score(cosine_min=0.5)
    report.report()
    assert "report.html, worse; `make gate` says why, " in capsys.readouterr().out
    space.score()
    report.report()
    assert [path.read_bytes() for path in pages] == first
    assert "No stage ran here" in (space.root / "reports" / "costs.html").read_text()
    assert str(space.root).encode() not in b"".join(first)
    assert b'alt="allo"' in first[1]


@pytest.mark.parametrize("damaged", ["baselines/allo.json", "reports/allo/plots/vectors.png"])
def test_a_damaged_file_gives_no_page(space: Workspace, damaged: str):
    (space.root / damaged).parent.mkdir(parents=True, exist_ok=True)
    (space.root / damaged).write_text("{")
    with pytest.raises(DataError):
        report.report()
    assert not list((space.root / "reports").glob("report.*"))


# The table of README.md.


def test_the_readme_gets_the_table_of_the_stored_scores_and_their_machine(space: Workspace):
    readme = space.root / "README.md"
    readme.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\n## More\n")
    space.score(cosine_mean=0.994)
    scores_page.write_page(space.root)
    text = readme.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n| model | first score |")
    assert "| allo | cosine_mean | 0.9940 | 0.9950 | 0.005 | 3 of 3 hold |\n" in text
    assert text.endswith(
        f"\n\nMachine of the baselines: AMD (family 25, model 1), 2 threads.\n\n{END}\n\n## More\n"
    )
    space.score(preset="my")
    with pytest.raises(NotFresh, match=r"^the scores are those of allo, preset 'my'; run `make"):
        scores_page.write_page(space.root)
    space.score()
    readme.write_text("# Title\n")
    with pytest.raises(DataError, match=f"README.md: needs the lines {BEGIN} and {END}"):
        scores_page.write_page(space.root)


def test_the_readme_of_the_project_has_the_scores_and_baselines_beside_it():
    readme = (ROOT / scores_page.PAGE).read_text()
    assert scores_page.with_table(readme, scores_page.judge_stored(ROOT)) == readme


# The line that shows the position of a score between bad and good.

FLOORS = {"floor_random": "random", "floor_constant": "constant"}
CEILINGS = {"oracle": "the oracle", "limit": "the limit"}
HIGHER = Rule("accuracy", "higher", 0.1, {}, FLOORS, CEILINGS)
LOWER = Rule("error", "lower", 0.5, {}, {"zero": "none", "affine": "affine"}, {"floor": "least"})
ALONE = Rule("rate", "higher", 0.2, {"default": 0.6})
ALONE_LOWER = Rule("rate", "lower", 0.2, {})
NEAR = Rule("rate", "near", 0.2, {})
MARKED = {"accuracy": 0.6, "floor_random": 0.1, "floor_constant": 0.2, "oracle": 1.0, "limit": 0.9}
MARKED |= {"error": 2.0, "zero": 8.0, "affine": 6.0, "floor": 1.0, "rate": 0.5}


def drawn(gated: Rule, **changed: Any) -> str:
    """Returns the mark of a score that was 0.6, 2 or 0.5 when the baseline was stored."""
    rule, scores = gated.under("default"), MARKED | changed
    metrics = {"metrics": {rule.metric: entry_of(rule, MARKED)}, "provenance": {}}
    content = {"schema": 1, "presets": {"default": metrics}}
    (line,) = judge(scores, content, [rule], "default").lines
    return mark(line, scores)


def ends(metric: str, low: float, high: float, seeds: float = 4.0) -> dict[str, float]:
    return {f"{metric}_low": low, f"{metric}_high": high, "seeds": seeds}


OVER_SEEDS = ends("accuracy", 0.4, 0.8)
FEW_SEEDS = ends("accuracy", 0.4, 0.8, seeds=3.0)
ACCURACY = "constant 0.200 … the oracle 1.000"


@pytest.mark.parametrize(
    ("gated", "changed", "line", "names"),
    [
        # From the best lower to the best upper reference of this evaluation.
        (HIGHER, {}, "──────────●──────────", ACCURACY),
        (HIGHER, {"accuracy": 1.2}, "──────────┼─────────▶", ACCURACY),
        (HIGHER, {"accuracy": 0.7} | OVER_SEEDS, "─────━━━━━┼━●━━━─────", ACCURACY),
        (HIGHER, {"accuracy": 0.7} | FEW_SEEDS, "──────────┼─●────────", ACCURACY),
        (LOWER, {"error": 3.5}, "──────────●─────┼────", "affine 6.000 … least 1.000"),
        # Without references, from where it would be worse to where it would be better.
        (ALONE, {}, "──────────●────┊─────", "worse 0.300 … better 0.700"),
        (ALONE_LOWER, {"rate": 0.6}, "─────●────┼──────────", "worse 0.700 … better 0.300"),
        (NEAR, {"rate": 0.4}, "─────●────┼──────────", "too low 0.300 … too high 0.700"),
        (ALONE._replace(most=0.6), {}, "─────────────●──────┊", "worse 0.300 … better 0.600"),
        # Noise widens that.
        (ALONE, ends("rate", 0.2, 0.8), "━━━━━━━━━━●━━┊━━━━━━━", "worse 0.200 … better 0.800"),
    ],
)
def test_a_line_shows_score_baseline_goal_and_interval_from_bad_to_good(
    gated: Rule, changed: dict[str, float], line: str, names: str
):
    assert drawn(gated, **changed) == f"`├{line}┤`<br>{names}"


def test_what_is_not_finite_or_has_no_length_is_not_drawn():
    assert drawn(HIGHER, accuracy=None) == "-"
    assert drawn(ALONE._replace(tolerance=0.0)) == "-"
    assert mark(Line("rate", "stale", "", value=0.5, baseline=0.5), MARKED) == "-"
    assert mark(Line("rate", "no baseline", "", ALONE.under("default"), 0.5), MARKED) == "-"
