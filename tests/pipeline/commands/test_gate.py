"""A verdict that is missing, stale, altered or unreadable is never a pass."""

import json
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.judging import verdicts
from pipeline.reporting import scores_page
from pipeline.reporting.scores_page import BEGIN, END
from pipeline.storage import artifacts
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Failure
from tests.pipeline.scored_workspace import SCORES, Workspace


@pytest.mark.usefixtures("space")
def test_a_held_baseline_passes_and_the_table_says_so(capsys: Capture):
    assert main(["gate", "allo", "allo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        "model    preset    metric         score    baseline    allowed    status\n"
        "-------  --------  -------------  -------  ----------  ---------  --------\n"
        "allo     default   cosine_mean    0.9950   0.9950      0.005      ok\n"
        "allo     default   cosine_min     0.9800   0.9800      0.03       ok\n"
        "allo     default   orthogonality  0.0500   0.0500      0.1        ok\n"
        "gate: passed; 3 metrics hold their baselines\n"
    )


def test_a_worse_score_is_told_with_its_baseline_and_the_way_out(space: Workspace, capsys: Capture):
    space.score(cosine_min=0.5)
    assert main(["gate", "allo"]) == 4
    out, err = capsys.readouterr()
    assert "passed" not in out
    assert err == (
        "gate: allo: worse: cosine_min 0.5 is 0.48 worse than baseline 0.98 (higher is better, "
        "tolerance 0.03)"
        "; baseline of 2026-01-02, commit abc123 [exit 4]\n"
        "gate: allo: the scores are kept; to make them the baseline all the same: "
        "`make promote MODELS=allo`, with ARGS=\"--force --why '...'\"\n"
    )


def test_a_first_baseline_is_offered_beside_the_scores(space: Workspace, capsys: Capture):
    space.files.baseline.unlink()
    space.score()
    assert main(["gate", "allo"]) == 4
    out, err = capsys.readouterr()
    assert "cosine_min     0.9800   -           0.03       no baseline\n" in out
    assert err == (
        "gate: allo: no baseline: preset 'default' has no baseline yet [exit 4]\n"
        "gate: allo: no baseline yet: `make promote MODELS=allo` stores these scores as the first\n"
    )


def test_each_model_is_judged_if_it_is_named_or_not(space: Workspace, capsys: Capture):
    assert main(["gate"]) == 0
    count = sum(len(verdicts.rules_of(model, "default")) for model in MODELS)
    assert f"gate: passed; {count} metrics" in capsys.readouterr().out
    for model in MODELS:
        first, *_ = verdicts.rules_of(model, "default")
        worst = -1e9 if first.direction == "higher" else 1e9
        assert main(["gate", model]) == 0
        Workspace(space.root, model).score(**{first.metric: worst})
        for named in ([], [model]):
            assert main(["gate", *named]) == 4
            assert f"gate: {model}: worse: {first.metric} " in capsys.readouterr().err


def ended(capsys: Capture, code: int) -> str:
    """What the gate says of allo in one line, if it ends with this code."""
    assert main(["gate", "allo"]) == code
    out, err = capsys.readouterr()
    assert "passed" not in out
    assert err.count("\n") == 1
    assert err.endswith(f" [exit {code}]\n")
    return err.removeprefix("gate: allo: ").removesuffix(f" [exit {code}]\n")


ABSENT = "missing: allo was not evaluated yet"
OTHERS = "stale: the verdict is not one of allo"
OTHER_RULES = "stale: the verdict is one of other rules than those of allo"
ALTERED = "stale: the verdict is not what these scores give: altered"


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("verdict", None, ABSENT),
        ("scores", None, ABSENT),
        ("verdict", "[]", OTHERS),
        ("verdict", {"model": "other"}, OTHERS),
        ("verdict", {"passed": True}, ALTERED),
        ("verdict", {"lines": []}, ALTERED),
        ("verdict", {"rules": []}, OTHER_RULES),
        ("verdict", {"preset": "smoke"}, "stale: the verdict is one of preset 'smoke', not of"),
        ("verdict", {"params": "0"}, "stale: params.yaml changed after allo was evaluated"),
        ("verdict", {"learner": "0"}, "stale: models/allo changed after the verdict"),
        ("scores", json.dumps(SCORES["allo"]), "stale: the scores changed after the verdict"),
        ("baseline", None, "stale: baselines/allo.json changed after the verdict"),
    ],
)
def test_a_verdict_of_other_files_or_altered_by_hand_is_no_pass(
    space: Workspace, capsys: Capture, file: str, content: Any, why: str
):
    space.score(cosine_mean=0.5)
    path = getattr(space.files, file)
    if content is None:
        path.unlink()
    elif isinstance(content, str):
        path.write_text(content)
    else:
        space.edit_verdict(**content)
    said = ended(capsys, 4)
    assert said.startswith(why)
    assert said.endswith("; run `make repro`")


RESTORE = "; `git checkout baselines/allo.json` restores it"
ANEW = "; run `dvc repro` to write it anew"


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("baseline", "", "cannot be read (JSONDecodeError"),
        ("baseline", '{"model": "iqn"}', "is not the baseline of allo"),
        ("baseline", '{"schema": 7, "model": "allo"}', "schema is 7: Input should be 1"),
        ("scores", '{"cosine_mean": true}', "must map names to numbers"),
        ("verdict", '{"model": "allo", "passed": 1}', "preset: Field required"),
    ],
)
def test_a_file_that_cannot_be_read_ends_with_3(
    space: Workspace, capsys: Capture, file: str, text: str, why: str
):
    path = getattr(space.files, file)
    path.write_text(text)
    if file == "scores":
        space.edit_verdict(scores_sha256=artifacts.file_digest(path))
    said = ended(capsys, 3)
    assert f"{path.name}: {why}" in said
    assert said.endswith(RESTORE if file == "baseline" else ANEW)


def test_unreadable_params_end_with_2(space: Workspace, capsys: Capture):
    (space.root / "params.yaml").unlink()
    assert ended(capsys, 2).startswith("gate: params.yaml: ")


@pytest.mark.usefixtures("space")
def test_a_preset_that_is_not_there_ends_with_2(failure: Failure):
    said = failure(main, "gate", "--preset", "smok", code=2)
    assert said.startswith("gate: unknown preset 'smok'; did you mean 'smoke'?; known: ")


def test_the_table_shows_what_noise_allows(space: Workspace, capsys: Capture):
    ends = {"orthogonality_low": -0.08, "orthogonality_high": 0.18, "seeds": 5.0}
    space.score(orthogonality=0.17, **ends)
    assert main(["gate", "allo"]) == 0
    assert (
        "orthogonality  0.1700   0.0500      0.13 (tolerance 0.1 + noise 0.03)  ok\n"
        in capsys.readouterr().out
    )


def test_the_readme_gets_the_table_of_the_stored_scores_and_their_machine(
    space: Workspace, capsys: Capture
):
    page = space.root / "README.md"
    page.write_text(f"# Title\n\n{BEGIN}\nold\n{END}\n\n## More\n")
    space.score(cosine_mean=0.994)
    assert main(["gate", "--page"]) == 0
    text = page.read_text()
    assert text.startswith(f"# Title\n\n{BEGIN}\n\n| model | preset |")
    assert "| allo | default | cosine_mean | 0.9940 | 0.9950 | 0.005 | ok |\n" in text
    assert text.endswith(f"\n\nMachine: AMD (family 25, model 1), 2 threads.\n\n{END}\n\n## More\n")
    page.write_text("# Title\n")
    assert main(["gate", "--page"]) == 3
    assert f"gate: README.md: needs the lines {BEGIN} and {END}" in capsys.readouterr().err


def test_the_readme_of_the_project_has_the_scores_and_baselines_beside_it():
    page = (ROOT / scores_page.PAGE).read_text()
    assert scores_page.with_table(page, scores_page.judge_stored(ROOT, list(MODELS))) == page
