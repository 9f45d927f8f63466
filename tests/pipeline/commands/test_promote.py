"""promote writes baselines, alone, and nothing worse without a reason."""

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.commands import promote
from pipeline.dvc import repro, workspace
from pipeline.storage.params_file import read_params, read_raw
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.scored_workspace import SCORES, Workspace, make_workspace

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def judged_again(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, list[str]]]:
    """What is evaluated once more after a promotion; here without DVC."""
    calls: list[tuple[str, list[str]]] = []

    def record(_root: Path, preset: str, models: list[str], update_aliases: bool) -> int:
        calls.append((preset, [*models, *(() if update_aliases else ("champion kept",))]))
        return 0

    monkeypatch.setattr(repro, "judge_again", record)
    return calls


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, judged_again: list[Any]) -> Workspace:
    monkeypatch.chdir(tmp_path)
    assert judged_again == []
    return make_workspace(tmp_path)["allo"]


def refused(space: Workspace, capsys: Capture, *arguments: str, code: int = 4) -> str:
    """The one line of a promotion that changes nothing."""
    before = space.files.baseline.read_bytes() if space.files.baseline.exists() else None
    capsys.readouterr()
    assert promote.main(["allo", *arguments]) == code
    assert (space.files.baseline.read_bytes() if space.files.baseline.exists() else None) == before
    out, err = capsys.readouterr()
    assert "now holds" not in out
    assert err.count("\n") == 1
    assert err.endswith(f" [exit {code}]\n")
    return err


def test_the_first_baseline_needs_no_reason_and_is_then_held(space: Workspace, capsys: Capture):
    space.files.baseline.unlink()
    space.score()
    assert promote.main(["allo"]) == 0
    assert capsys.readouterr().out.endswith(
        "baselines/allo.json: preset default now holds the 3 scores of run aaaaaaaaaaaa; "
        "commit it\n"
    )
    space.score()
    assert json.loads(space.files.verdict.read_text())["passed"]


def test_a_baseline_holds_rules_neighbours_and_provenance(space: Workspace):
    space.files.baseline.unlink()
    space.score()
    promote.main(["allo"])
    assert space.metrics()["cosine_mean"] == {
        "value": 0.995,
        "direction": "higher",
        "tolerance": 0.005,
        "goal": 0.99,
        "floors": {"floor_untrained": 0.12, "floor_random": 0.08, "floor_constant": 0.09},
        "ceilings": {"ceiling_truth": 1.0},
    }
    provenance = space.baseline()["presets"]["default"]["provenance"]
    assert datetime.date.fromisoformat(provenance.pop("date"))
    assert provenance == {
        "run_key": "a" * 64,
        "commit": "none",
        "device": "auto",
        "cpu": "some CPU",
        "seeds": 1,
        "why": None,
    }


def test_better_scores_move_the_baseline_and_are_judged_again(
    space: Workspace, judged_again: list[tuple[str, list[str]]]
):
    space.score(orthogonality=0.001, cosine_mean=0.999)
    assert promote.main(["allo"]) == 0
    assert space.metrics()["cosine_mean"]["value"] == 0.999
    assert judged_again == [("default", ["allo"])]


def test_worse_scores_are_refused_with_every_reason(space: Workspace, capsys: Capture):
    space.score(cosine_min=0.9, orthogonality=0.9)
    assert refused(space, capsys) == (
        "promote: nothing is promoted: "
        "allo: cosine_min 0.9 is 0.08 worse than baseline 0.98 (higher is better, tolerance 0.03); "
        "allo: orthogonality 0.9 is 0.85 worse than baseline "
        "0.05 (lower is better, tolerance 0.1); "
        "--force --why '...' stores it all the same [exit 4]\n"
    )


def test_worse_scores_with_a_reason_are_stored_with_it(space: Workspace):
    space.score(cosine_min=0.9)
    assert promote.main(["allo", "--force", "--why", "smaller network"]) == 0
    assert space.metrics()["cosine_min"]["value"] == 0.9
    assert space.baseline()["presets"]["default"]["provenance"]["why"] == "smaller network"


@pytest.mark.parametrize("arguments", [["--force"], ["--why", "because"], ["--force", "--why", ""]])
@pytest.mark.usefixtures("space")
def test_force_and_why_go_together(capsys: Capture, arguments: list[str]):
    with pytest.raises(SystemExit) as caught:
        promote.main(arguments)
    assert caught.value.code == 2
    assert "--force and --why '...' go together" in capsys.readouterr().err


def test_a_first_baseline_below_its_goal_needs_a_reason(space: Workspace, capsys: Capture):
    space.files.baseline.unlink()
    space.score(cosine_mean=0.9)
    assert "cosine_mean 0.9 misses the goal 0.99 (higher is better)" in refused(space, capsys)
    assert promote.main(["allo", "--force", "--why", "a start"]) == 0


def test_a_first_baseline_below_a_floor_needs_a_reason(space: Workspace, capsys: Capture):
    space.files.baseline.unlink()
    space.score(floor_untrained=0.996)
    assert "cosine_mean 0.995 does not beat floor_untrained 0.996 (higher is better)" in refused(
        space, capsys
    )


@pytest.mark.parametrize("name", ["cosine_min", "floor_random", "ceiling_truth"])
def test_a_score_that_is_not_finite_is_never_stored(space: Workspace, capsys: Capture, name: str):
    space.score(**{name: None})
    expected = (
        f"promote: allo is not promoted: no finite score for {name}; a baseline needs one "
        f"[exit 4]\n"
    )
    assert refused(space, capsys) == expected
    assert refused(space, capsys, "--force", "--why", "no matter") == expected


def test_a_metric_that_is_new_in_the_code_is_stored_without_a_reason(space: Workspace):
    content = space.baseline()
    del content["presets"]["default"]["metrics"]["cosine_min"]
    space.edit_baseline(content)
    space.score()
    assert promote.main(["allo"]) == 0
    assert set(space.metrics()) == {"cosine_mean", "cosine_min", "orthogonality"}


def test_dropping_or_loosening_what_was_judged_needs_a_reason(space: Workspace, capsys: Capture):
    space.edit_entry("cosine_mean", tolerance=0.001)
    space.score()
    assert "cosine_mean has another tolerance in the baseline than in the model" in refused(
        space, capsys
    )
    content = space.baseline()
    content["presets"]["default"]["metrics"]["recall"] = content["presets"]["default"]["metrics"][
        "cosine_min"
    ]
    space.edit_baseline(content)
    space.score()
    assert "recall is in the baseline, but the model's evaluation does not judge it" in refused(
        space, capsys
    )


def test_scores_changed_after_the_verdict_are_refused(space: Workspace, capsys: Capture):
    space.files.scores.write_text(json.dumps(SCORES["allo"] | {"cosine_mean": 1.0}))
    why = "promote: the scores changed after the verdict; run `make repro` [exit 4]\n"
    assert refused(space, capsys) == why
    assert refused(space, capsys, "--force", "--why", "no matter") == why


def test_scores_of_another_learner_than_the_one_at_hand_are_refused(
    space: Workspace, capsys: Capture
):
    space.train("b" * 64)
    assert refused(space, capsys) == (
        "promote: models/allo changed after the verdict; run `make repro` [exit 4]\n"
    )


def test_nothing_evaluated_is_refused(space: Workspace, capsys: Capture):
    space.files.verdict.unlink()
    assert (
        refused(space, capsys) == "promote: allo was not evaluated yet; run `make repro` [exit 4]\n"
    )
    assert refused(space, capsys, "--preset", "smoke") == (
        "promote: allo was not evaluated yet; run `make repro PRESET=smoke` [exit 4]\n"
    )


def test_a_damaged_baseline_is_not_written_over(space: Workspace, capsys: Capture):
    for damaged in ("{", "null", '{"schema": 9, "model": "allo", "presets": {}}'):
        space.edit_baseline(damaged)
        assert "`git checkout baselines/allo.json` restores it [exit 3]" in refused(
            space, capsys, code=3
        )


def test_scores_of_other_params_are_refused(space: Workspace, capsys: Capture):
    params = space.root / "params.yaml"
    params.write_text(params.read_text().replace("seed: 0", "seed: 1", 1))
    assert (
        refused(space, capsys)
        == "promote: params.yaml changed after allo was evaluated; run `make repro` [exit 4]\n"
    )


def test_an_unknown_model_or_preset_ends_with_2_in_one_line(space: Workspace, capsys: Capture):
    names = ", ".join(MODELS)
    assert (
        refused(space, capsys, "alo", code=2)
        == f"promote: unknown model 'alo'; known: {names} [exit 2]\n"
    )
    assert "promote: unknown preset 'smok'; did you mean 'smoke'?" in refused(
        space, capsys, "--preset", "smok", code=2
    )
    assert "unknown preset '../..'" in refused(space, capsys, "--preset", "../..", code=2)


def test_a_preset_is_promoted_from_its_own_workspace_into_the_one_baseline_file(space: Workspace):
    work = workspace.workspace_of(space.root, "smoke")
    other = Workspace(work)
    work.mkdir(parents=True)
    shutil.copytree(ROOT / "inputs", work / "inputs")
    with (work / "params.yaml").open("w") as file:
        YAML().dump(read_raw(ROOT, "smoke"), file)
    other.train("c" * 64)
    other.score("smoke", cosine_mean=0.7)
    before = space.baseline()["presets"]["default"]
    assert promote.main(["allo", "--preset", "smoke"]) == 0
    stored = space.baseline()["presets"]
    assert stored["default"] == before
    assert stored["smoke"]["metrics"]["cosine_mean"]["value"] == 0.7
    assert stored["smoke"]["metrics"]["cosine_mean"]["goal"] is None
    assert stored["smoke"]["provenance"]["run_key"] == "c" * 64
    assert not other.files.baseline.exists()


def test_committed_baselines_are_what_promote_writes():
    """Sorted keys, known presets, and rules that the code still has."""
    for path in (ROOT / "baselines").glob("*.json"):
        stored = json.loads(path.read_text())
        for preset, entry in stored["presets"].items():
            read_params(ROOT, preset)
            for rule in promote.verdicts.rules_of(path.stem, preset):
                result = entry["metrics"][rule.metric]
                assert result["direction"] == rule.direction
                assert result["tolerance"] == rule.tolerance
                assert result["goal"] == rule.goal
                assert (set(result["floors"]), set(result["ceilings"])) == (
                    set(rule.lower_references),
                    set(rule.upper_references),
                )
