"""promote writes baselines, alone, and nothing worse without a reason."""

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline.cli import main
from pipeline.dvc import repro, workspace
from pipeline.judging import verdicts
from pipeline.storage.params_file import read_params, read_raw
from quatrain.baselines import StoredMetric
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.scored_workspace import SCORES, Workspace
from tests.pipeline.small_checkout import contents

Calls = list[tuple[Any, ...]]
Refused = Callable[..., str]
FORCED = ("--force", "--why", "smaller network")


@pytest.fixture(autouse=True)
def judged_again(monkeypatch: Patch) -> Calls:
    """What is evaluated once more after a promotion; here without DVC."""
    calls: Calls = []

    def record(_root: Path, *arguments: Any, update_aliases: bool) -> int:
        calls.append((*arguments, update_aliases))
        return 0

    monkeypatch.setattr(repro, "judge_again", record)
    return calls


@pytest.fixture
def refused(space: Workspace, failure: Refused) -> Refused:
    """The line of a promotion that changes nothing."""

    def refuse(*arguments: str, code: int = 4) -> str:
        before = contents(space.root / "baselines")
        said = failure(main, "promote", *arguments, "allo", code=code)
        assert contents(space.root / "baselines") == before
        return said.removeprefix("promote: ")

    return refuse


def test_a_first_baseline_holds_rules_references_and_provenance(space: Workspace, capsys: Capture):
    space.files.baseline.unlink()
    space.score()
    assert main(["promote", "allo"]) == 0
    out = capsys.readouterr().out
    assert "cosine_min     -      0.9800  -             no baseline\n" in out
    said = "preset default now holds the 3 scores of run aaaaaaaaaaaa; commit it\n"
    assert out.endswith(f"baselines/allo.json: {said}")
    floors = sorted(name for name in SCORES["allo"] if name.startswith("floor"))
    rule = {"value": 0.995, "direction": "higher", "tolerance": 0.005, "goal": 0.99}
    references = {"floors": floors, "ceilings": ["ceiling_truth"]}
    assert space.metrics()["cosine_mean"] == rule | references
    provenance = space.baseline()["presets"]["default"]["provenance"]
    assert datetime.date.fromisoformat(provenance.pop("date"))
    machine = {"device": "cpu", "cpu": "25 / 1 / AMD", "threads": "2", "commit": "none"}
    assert provenance == machine | {"run_key": "a" * 64, "seeds": 1, "why": None}
    space.score()
    assert json.loads(space.files.verdict.read_text())["passed"]


def test_better_scores_are_shown_stored_and_judged_again(
    space: Workspace, judged_again: Calls, capsys: Capture
):
    interval = {"orthogonality_low": 0.007, "orthogonality_high": 0.013, "seeds": 5.0}
    space.score(cosine_mean=0.999, orthogonality=0.01, **interval)
    assert main(["promote", "allo", "iqn"]) == 0
    assert capsys.readouterr().out.startswith(
        "model    preset    metric         old       new       difference        status\n"
        "-------  --------  -------------  --------  --------  ----------------  --------\n"
        "allo     default   cosine_mean    0.9950    0.9990    +0.0040           ok\n"
        "allo     default   cosine_min     0.9800    0.9800    0.0000            ok\n"
        "allo     default   orthogonality  0.0500    0.0100    -0.0400 ± 0.0030  ok\n"
        "iqn      default   return_mean    105.0000  105.0000  0.0000            ok\n"
    )
    assert space.metrics()["cosine_mean"]["value"] == 0.999
    assert main(["promote", "allo", "--keep-champion"]) == 0
    assert judged_again == [("default", ["allo", "iqn"], True), ("default", ["allo"], False)]


def test_worse_scores_are_refused_or_stored_with_their_reason(space: Workspace, refused: Refused):
    space.score(cosine_min=0.9, orthogonality=0.9)
    assert refused("iqn") == (
        "nothing is promoted: "
        "allo: cosine_min 0.9 is 0.08 worse than baseline 0.98 (higher is better, tolerance 0.03); "
        "allo: orthogonality 0.9 is 0.85 worse than baseline "
        "0.05 (lower is better, tolerance 0.1); "
        "--force --why '...' stores it all the same"
    )
    assert main(["promote", "allo", *FORCED]) == 0
    assert space.metrics()["cosine_min"]["value"] == 0.9
    assert space.baseline()["presets"]["default"]["provenance"]["why"] == "smaller network"


def test_a_reason_is_stored_without_passwords(space: Workspace):
    assert main(["promote", "--force", "--why", "see http://u:word@host/x", "allo"]) == 0
    provenance = space.baseline()["presets"]["default"]["provenance"]
    assert provenance["why"] == "see http://***@host/x"


def test_force_and_why_go_together(capsys: Capture):
    no_reason = (["--force"], ["--force", "--why", ""], ["--force", "--why", "  "])
    for arguments in (["--why", "because"], *no_reason):
        assert main(["promote", *arguments]) == 2
        assert "--force and --why '...' go together" in capsys.readouterr().err


def test_a_low_first_baseline_or_another_rule_needs_a_reason(space: Workspace, refused: Refused):
    """A metric that is judged for the first time needs none."""
    content = space.baseline()
    metrics = content["presets"]["default"]["metrics"]
    cosine_min = metrics.pop("cosine_min")
    space.edit_baseline(content)
    assert main(["promote", "allo"]) == 0
    assert set(space.metrics()) == {"cosine_mean", "cosine_min", "orthogonality"}

    metrics |= {"cosine_min": cosine_min, "recall": cosine_min}
    metrics["cosine_mean"]["tolerance"] = 0.001
    space.edit_baseline(content)
    why = refused()
    assert "cosine_mean has another tolerance in the baseline than in the model" in why
    assert "recall is in the baseline, but the model's evaluation does not judge it" in why

    space.files.baseline.unlink()
    space.score(cosine_mean=0.9)
    assert "cosine_mean 0.9 misses the goal 0.99 (higher is better)" in refused()
    assert main(["promote", "allo", *FORCED]) == 0


def test_what_is_never_stored(space: Workspace, refused: Refused):
    space.files.scores.write_text(json.dumps(SCORES["allo"] | {"cosine_mean": 1.0}))
    why = "the scores changed after the verdict; run `make repro`"
    assert refused() == refused(*FORCED) == why
    space.score(cosine_min=None, floor_random=None, ceiling_truth=None)
    names = "ceiling_truth, cosine_min, floor_random"
    why = f"allo is not promoted: no finite score for {names}; a baseline needs one"
    assert refused() == refused(*FORCED) == why
    space.score()
    space.edit_baseline("{")
    assert "`git checkout baselines/allo.json` restores it" in refused(code=3)
    assert "unknown preset '../..'" in refused("--preset", "../..", code=2)


def judge_again(space: Workspace, other: Workspace, **scores: float) -> None:
    """As if the preset had run in its workspace again, with these scores."""
    other.files.baseline.parent.mkdir(exist_ok=True)
    shutil.copy(space.files.baseline, other.files.baseline)
    other.score("smoke", **scores)


def test_a_preset_is_promoted_from_its_own_workspace_and_judged_there(
    space: Workspace, refused: Refused, capsys: Capture
):
    work = workspace.workspace_of(space.root, "smoke")
    shutil.copytree(ROOT / "inputs", work / "inputs")
    with (work / "params.yaml").open("w") as file:
        YAML().dump(read_raw(ROOT, "smoke"), file)
    other = Workspace(work)
    other.train("c" * 64)
    other.score("smoke", cosine_mean=0.7)
    before = space.baseline()["presets"]["default"]
    assert main(["gate", "allo", "--preset", "smoke"]) == 4
    assert "preset 'smoke' has no baseline yet" in capsys.readouterr().err
    assert main(["promote", "allo", "--preset", "smoke"]) == 0
    stored = space.baseline()["presets"]
    assert stored["default"] == before
    assert stored["smoke"]["metrics"]["cosine_mean"]["value"] == 0.7
    assert stored["smoke"]["metrics"]["cosine_mean"]["goal"] is None
    assert stored["smoke"]["provenance"]["run_key"] == "c" * 64
    assert not other.files.baseline.exists()
    assert main(["gate", "allo"]) == 0  # as before: the verdict of another preset is not concerned
    assert main(["gate", "allo", "--preset", "smoke"]) == 4
    assert "baselines/allo.json changed after the verdict; " in capsys.readouterr().err
    judge_again(space, other, cosine_mean=0.7)
    assert main(["gate", "allo", "--preset", "smoke"]) == 0
    assert "allo     smoke     cosine_mean    0.7000   0.7000 " in capsys.readouterr().out
    judge_again(space, other, cosine_mean=0.5)
    assert main(["gate", "allo"]) == 0
    assert main(["gate", "allo", "--preset", "smoke"]) == 4
    params = space.root / "params.yaml"
    params.write_text(params.read_text().replace("seed: 0", "seed: 1", 1))
    why = "params.yaml changed after allo was evaluated; run `make repro PRESET=smoke`"
    assert refused("--preset", "smoke") == why


@pytest.mark.parametrize("model", MODELS)
def test_committed_baselines_are_what_promote_writes(model: str):
    """Known presets, and rules that the code still has."""
    stored = json.loads((ROOT / "baselines" / f"{model}.json").read_text())
    for preset, entry in stored["presets"].items():
        config = getattr(read_params(ROOT, preset), model)
        for rule in verdicts.rules_of(model, preset, config):
            stored_metric = StoredMetric.model_validate(entry["metrics"][rule.metric])
            assert stored_metric.differs_from(rule) is None
