"""A verdict that is missing, stale, altered or unreadable is never a pass."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.commands import gate
from pipeline.judging import verdicts
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from quatrain.registry import MODELS
from tests.pipeline.scored_workspace import SCORES, Workspace, make_workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    return make_workspace(tmp_path)["allo"]


@pytest.mark.usefixtures("space")
def test_a_held_baseline_passes_and_the_table_says_so(capsys: Capture):
    assert gate.main(["allo"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out == (
        "model    preset    metric         score    baseline    tolerance    status\n"
        "-------  --------  -------------  -------  ----------  -----------  --------\n"
        "allo     default   cosine_mean    0.9950   0.9950      0.005        ok\n"
        "allo     default   cosine_min     0.9800   0.9800      0.03         ok\n"
        "allo     default   orthogonality  0.0500   0.0500      0.1          ok\n"
        "gate: passed; 3 metrics hold their baselines\n"
    )


def test_a_worse_experiment_is_broken_with_its_baseline_and_the_way_out(
    space: Workspace, capsys: Capture
):
    space.score(cosine_min=0.5)
    assert gate.main(["allo"]) == 4
    assert capsys.readouterr().err == (
        "gate: allo: worse: cosine_min 0.5 is 0.48 worse than baseline 0.98 (higher is better, "
        "tolerance 0.03)"
        "; baseline of 2026-01-02, commit abc123 [exit 4]\n"
        "gate: allo: the scores are kept; to make them the baseline all the same: "
        "python -m pipeline.commands.promote allo --force --why '...'\n"
    )


@pytest.mark.parametrize("model", MODELS)
def test_each_model_is_judged_whether_it_is_named_or_not(
    space: Workspace, capsys: Capture, model: str
):
    assert gate.main([]) == 0
    assert (
        f"gate: passed; {sum(len(verdicts.rules_of(item, 'default')) for item in MODELS)} metrics"
        in capsys.readouterr().out
    )
    first, *_ = verdicts.rules_of(model, "default")
    Workspace(space.root, model).score(
        **{first.metric: -1e9 if first.direction == "higher" else 1e9}
    )
    for named in ([], [model]):
        assert gate.main(named) == 4
        assert f"gate: {model}: worse: {first.metric} " in capsys.readouterr().err
    assert gate.main([other for other in MODELS if other != model]) == 0


def raised(space: Workspace) -> None:
    space.edit_entry("cosine_mean", value=2.0)


def raised_and_judged_again(space: Workspace) -> None:
    raised(space)
    space.score()


def no_baseline(space: Workspace) -> None:
    space.files.baseline.unlink()
    space.score()


def no_baseline_since(space: Workspace) -> None:
    space.files.baseline.unlink()


def other_direction(space: Workspace) -> None:
    space.edit_entry("orthogonality", direction="higher")
    space.score()


def loosened(space: Workspace) -> None:
    space.edit_entry("cosine_min", tolerance=0.9)
    space.score(cosine_min=0.4)


def baseline_lacks_a_metric(space: Workspace) -> None:
    content = space.baseline()
    del content["presets"]["default"]["metrics"]["cosine_min"]
    space.edit_baseline(content)
    space.score()


def baseline_has_a_metric_more(space: Workspace) -> None:
    content = space.baseline()
    metrics = content["presets"]["default"]["metrics"]
    metrics["recall"] = metrics["cosine_min"]
    space.edit_baseline(content)
    space.score()


def score_missing(space: Workspace) -> None:
    scores = {name: value for name, value in SCORES["allo"].items() if name != "cosine_min"}
    space.files.scores.write_text(json.dumps(scores))
    verdicts.write(space.root, "allo", read_params(space.root))


def score_not_finite(space: Workspace) -> None:
    space.score(cosine_mean=None)


def scores_changed(space: Workspace) -> None:
    space.files.scores.write_text(json.dumps(SCORES["allo"] | {"cosine_mean": 0.999}))


def verdict_passed_by_hand(space: Workspace) -> None:
    space.score(cosine_mean=0.5)
    space.edit_verdict(passed=True)


def verdict_lines_altered(space: Workspace) -> None:
    space.edit_verdict(lines=[])


def verdict_with_other_rules(space: Workspace) -> None:
    space.edit_verdict(rules=[])


def verdict_of_another_preset(space: Workspace) -> None:
    space.edit_verdict(preset="smoke")


def verdict_of_another_model(space: Workspace) -> None:
    space.edit_verdict(model="other")


def verdict_is_a_list(space: Workspace) -> None:
    space.files.verdict.write_text("[]")


def no_verdict(space: Workspace) -> None:
    space.files.verdict.unlink()


def no_scores(space: Workspace) -> None:
    space.files.scores.unlink()


def below_goal(space: Workspace) -> None:
    space.set_baseline(cosine_mean=0.985)
    space.score(cosine_mean=0.985)


def below_floor(space: Workspace) -> None:
    space.edit_entry(
        "cosine_mean",
        floors={"floor_untrained": 0.999, "floor_random": 0.08, "floor_constant": 0.09},
    )
    space.score()


BROKEN: list[tuple[Callable[[Workspace], None], str]] = [
    (raised, "stale: baselines/allo.json changed after the verdict; run `make repro` [exit 4]"),
    (
        raised_and_judged_again,
        "worse: cosine_mean 0.995 is 1 worse than baseline 2 (higher is better, tolerance 0.005)",
    ),
    (no_baseline, "no baseline: preset 'default' has no baseline yet [exit 4]"),
    (
        no_baseline_since,
        "stale: baselines/allo.json changed after the verdict; run `make repro` [exit 4]",
    ),
    (
        other_direction,
        "stale: orthogonality is 'higher' in the baseline, but the model says 'lower'",
    ),
    (
        loosened,
        "worse: cosine_min 0.4 is 0.58 worse than baseline 0.98 (higher is better, tolerance 0.03)",
    ),
    (baseline_lacks_a_metric, "no baseline: cosine_min 0.98 has no entry in the baseline yet"),
    (
        baseline_has_a_metric_more,
        "stale: recall is in the baseline, but the model's evaluation does not judge it any",
    ),
    (score_missing, "missing: cosine_min is judged, but the evaluation did not report it"),
    (score_not_finite, "not finite: cosine_mean is NaN or infinite"),
    (scores_changed, "stale: the scores changed after the verdict; run `make repro` [exit 4]"),
    (
        verdict_passed_by_hand,
        "stale: the verdict is not what these scores give: altered; run `make repro` [exit 4]",
    ),
    (
        verdict_lines_altered,
        "stale: the verdict is not what these scores give: altered; run `make repro` [exit 4]",
    ),
    (
        verdict_with_other_rules,
        "stale: the verdict is not what these scores give: altered; run `make repro` [exit 4]",
    ),
    (
        verdict_of_another_preset,
        "stale: the verdict is one of preset 'smoke', not of 'default'; run `make repro`",
    ),
    (verdict_of_another_model, "stale: the verdict is not one of allo; run `make repro` [exit 4]"),
    (verdict_is_a_list, "stale: the verdict is not one of allo; run `make repro` [exit 4]"),
    (no_verdict, "missing: allo was not evaluated yet; run `make repro` [exit 4]"),
    (no_scores, "missing: allo was not evaluated yet; run `make repro` [exit 4]"),
    (below_goal, "below goal: cosine_mean 0.985 misses the goal 0.99 (higher is better)"),
    (
        below_floor,
        "below floor: cosine_mean 0.995 does not beat floor_untrained 0.999 (higher is better)",
    ),
]


@pytest.mark.parametrize(("change", "why"), BROKEN, ids=[change.__name__ for change, _ in BROKEN])
def test_a_broken_baseline_ends_with_4(
    space: Workspace, capsys: Capture, change: Callable[[Workspace], None], why: str
):
    change(space)
    assert gate.main(["allo"]) == 4
    out, err = capsys.readouterr()
    assert f"gate: allo: {why}" in err
    assert "passed" not in out
    assert "Traceback" not in err


RESTORES = "; `git checkout baselines/allo.json` restores it [exit 3]\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "cannot be read (JSONDecodeError"),
        ("{", "cannot be read (JSONDecodeError"),
        (
            '{"schema": 1, "model": "allo", "presets": {"default": {"metr',
            "cannot be read (JSONDecodeError",
        ),
        ('{"schema": 1, "schema": 1}', "holds the key 'schema' twice"),
        ('{"schema": NaN}', "holds the number NaN, which is not finite"),
        ('{"schema": 1e999}', "holds the number 1e999, which is not finite"),
        ("[]", "is not the baseline of allo"),
        ("null", "is not the baseline of allo"),
        ('{"schema": 1, "model": "allo"}', "presets: Field required"),
        ('{"schema": 0, "model": "allo", "presets": {}}', "schema is 0: Input should be 1"),
        ('{"schema": 7, "model": "allo", "presets": {}}', "schema is 7: Input should be 1"),
        ('{"schema": 1, "model": "iqn", "presets": {}}', "is not the baseline of allo"),
        (
            '{"schema": 1, "model": "allo", "presets": {"default": 3}}',
            "presets.default is 3: Input should be a valid dictionary",
        ),
    ],
)
def test_a_baseline_that_cannot_be_read_ends_with_3_in_one_line(
    space: Workspace, capsys: Capture, text: str, why: str
):
    space.edit_baseline(text)
    assert gate.main(["allo"]) == 3
    out, err = capsys.readouterr()
    assert err.startswith("gate: allo: baselines/allo.json: ")
    assert why in err
    assert err.endswith(RESTORES)
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"value": None}, "cosine_min.value is None: Input should be a valid number"),
        ({"value": "0.9"}, "cosine_min.value is '0.9': Input should be a valid number"),
        (
            {"tolerance": -1},
            "cosine_min.tolerance is -1: Input should be greater than or equal to 0",
        ),
        (
            {"direction": "up"},
            "cosine_min.direction is 'up': Input should be 'higher', 'lower' or 'near'",
        ),
        ({"value": ...}, "cosine_min.value: Field required"),
    ],
)
def test_an_entry_of_another_form_ends_with_3(
    space: Workspace, capsys: Capture, changed: dict[str, object], why: str
):
    space.edit_entry("cosine_min", **changed)
    assert gate.main(["allo"]) == 3
    err = capsys.readouterr().err
    assert why in err
    assert err.endswith(RESTORES)


@pytest.mark.parametrize("name", ["scores", "verdict"])
@pytest.mark.parametrize(
    "text", ["", "{", '{"a": 1, "a": 2}', '{"preset": "default", "model": "allo", "scores_sha2']
)
def test_damaged_scores_or_verdict_end_with_3(
    space: Workspace, capsys: Capture, name: str, text: str
):
    getattr(space.files, name).write_text(text)
    if name == "scores":
        space.edit_verdict(scores_sha256=artifacts.file_digest(space.files.scores))
    assert gate.main(["allo"]) == 3
    err = capsys.readouterr().err
    assert f"{name}.json" in err
    assert err.endswith("[exit 3]\n")


@pytest.mark.parametrize("scores", ["[]", '{"cosine_mean": "0.99"}', '{"cosine_mean": true}'])
def test_scores_that_are_no_numbers_end_with_3(space: Workspace, capsys: Capture, scores: str):
    space.files.scores.write_text(scores)
    space.edit_verdict(scores_sha256=artifacts.file_digest(space.files.scores))
    assert gate.main(["allo"]) == 3
    assert (
        "scores.json: must map names to numbers; run `dvc repro` to write it anew [exit 3]"
        in capsys.readouterr().err
    )


def test_rules_of_another_form_end_with_3(space: Workspace, capsys: Capture):
    space.edit_verdict(rules=[{"metric": "cosine_mean", "direction": "up"}])
    assert gate.main(["allo"]) == 3
    assert (
        "verdict.json: rules.0.direction: Input should be 'higher', 'lower' or 'near'; "
        "run `dvc repro` to write it anew [exit 3]" in capsys.readouterr().err
    )


def test_a_model_that_judges_nothing_ends_with_4(
    space: Workspace, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(verdicts, "rules_of", lambda *_: ())
    space.files.baseline.unlink()
    space.score()
    assert gate.main(["allo"]) == 4
    out, err = capsys.readouterr()
    assert (
        err == "gate: allo: missing: nothing is judged: the model's "
        "evaluation names no metric [exit 4]\n"
    )
    assert "passed" not in out


def test_an_unknown_model_and_unreadable_params_end_with_2_in_one_line(
    space: Workspace, capsys: Capture
):
    assert gate.main(["alo"]) == 2
    assert (
        capsys.readouterr().err
        == f"gate: unknown model 'alo'; known: {', '.join(MODELS)} [exit 2]\n"
    )
    (space.root / "params.yaml").unlink()
    assert gate.main(["allo"]) == 2
    assert capsys.readouterr().err.endswith("[exit 2]\n")


def test_a_first_baseline_is_offered_beside_the_scores(space: Workspace, capsys: Capture):
    no_baseline(space)
    gate.main(["allo"])
    out, err = capsys.readouterr()
    assert "cosine_min     0.9800   -           0.03         no baseline\n" in out
    assert err == (
        "gate: allo: no baseline: preset 'default' has no baseline yet [exit 4]\n"
        "gate: allo: to make these scores its baseline: python -m pipeline.commands.promote allo\n"
    )
