"""promote writes one entry of a baseline, and nothing worse without a reason; it runs nothing."""

import datetime
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.cli import main
from pipeline.judging import drift, render
from pipeline.judging.gate import gate, rules_of
from pipeline.judging.promotion import promote
from pipeline.judging.scores import NotFresh, read_scores
from pipeline.runtime.errors import BaselineBroken
from pipeline.storage.params_file import read_params, workspace_of
from quatrain.baselines import StoredMetric
from quatrain.errors import DataError
from quatrain.presets import read_raw
from quatrain.registry import MODELS
from quatrain.storage import folders
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.scored_workspace import DATASET, PROVENANCE, SCORES, SETTINGS, Workspace
from tests.pipeline.small_checkout import contents

WHY = "smaller network"


def stored(space: Workspace, *models: str, why: str | None = None, preset: str = "default") -> None:
    work = workspace_of(space.root, preset)
    promote(space.root, work, models or ["allo"], read_params(space.root, preset), why)


def gate_code(space: Workspace, preset: str = "default") -> int:
    work, params = workspace_of(space.root, preset), read_params(space.root, preset)
    return gate(space.root, work, ["allo"], params)


def refused(space: Workspace, *models: str, why: str | None = None) -> str:
    """What a promotion that changes nothing says."""
    before = contents(space.root)
    with pytest.raises((BaselineBroken, NotFresh, DataError)) as caught:
        stored(space, *models, why=why)
    assert contents(space.root) == before
    return str(caught.value)


def test_a_first_baseline_holds_rules_references_and_provenance(space: Workspace, capsys: Capture):
    space.stored.unlink()
    stored(space)
    out = capsys.readouterr().out
    assert "cosine_min     0.9800   -           -             0.03       no baseline\n" in out
    said = "preset default now holds the 3 scores of run aaaaaaaaaaaa"
    afterwards = "run `make repro`: it writes the report anew and moves the alias champion; then"
    assert f"\nbaselines/allo.json: {said}\n{afterwards}" in out
    floors = sorted(name for name in SCORES["allo"] if name.startswith("floor"))
    rule = {"value": 0.995, "direction": "higher", "tolerance": 0.005, "goal": 0.99}
    references = {"floors": floors, "ceilings": ["ceiling_truth"]}
    assert space.metrics()["cosine_mean"] == rule | references
    provenance = space.baseline()["presets"]["default"]["provenance"]
    assert datetime.date.fromisoformat(provenance.pop("date"))
    assert provenance.pop("params")["allo"]["train"]["steps"]
    code = provenance.pop("code")
    recorded = {"run_key": "a" * 64, "commit": "none", "data": DATASET, "seeds": 1, **SETTINGS}
    assert provenance.pop("by")
    assert provenance == recorded | {"why": None}
    assert code == read_scores(space.root, "allo").digests["code"]
    assert gate_code(space) == 0


def test_a_baseline_keeps_those_before_it_and_its_own_run_replaces_itself(space: Workspace):
    space.score(cosine_mean=0.999)
    stored(space)
    stored(space)
    (before,) = space.baseline()["presets"]["default"]["history"]
    assert before["scores"]["cosine_mean"] == 0.995
    kept = {key: PROVENANCE[key] for key in ("run_key", "commit", "date", "by", "why")}
    assert before["provenance"] == kept


def test_better_scores_are_shown_beside_the_old_ones_and_stored(space: Workspace, capsys: Capture):
    """And nothing but baselines is written."""
    interval = {"orthogonality_low": 0.007, "orthogonality_high": 0.013, "seeds": 5.0}
    space.score(cosine_mean=0.999, orthogonality=0.01, **interval)
    before = contents(space.root)
    stored(space, "allo", "iqn")
    out = capsys.readouterr().out
    assert "orthogonality  0.0100 (0.0070 to 0.0130)  0.0500 " in out
    assert space.metrics()["cosine_mean"]["value"] == 0.999
    assert space.metrics()["orthogonality"]["interval"] == [0.007, 0.013]
    after = contents(space.root)
    changed = {name for name in after if after[name] != before.get(name)}
    assert changed == {"baselines/allo.json", "baselines/iqn.json"}


def test_worse_scores_are_refused_or_stored_with_their_reason(space: Workspace):
    """Those of no model are stored if one is refused."""
    space.score(cosine_min=0.9, orthogonality=0.9)
    assert refused(space, "iqn", "allo") == (
        "nothing is promoted: "
        "allo: cosine_min 0.9 is 0.08 worse than baseline 0.98 (higher is better, tolerance 0.03); "
        "allo: orthogonality 0.9 is 0.85 worse than baseline "
        "0.05 (lower is better, tolerance 0.1); "
        """`make promote MODELS='iqn allo' ARGS="--force --why '...'"` stores it all the same"""
    )
    stored(space, why=f"{WHY}, see http://u:word@host/x")
    assert space.metrics()["cosine_min"]["value"] == 0.9
    provenance = space.baseline()["presets"]["default"]["provenance"]
    assert provenance["why"] == f"{WHY}, see http://***@host/x"


def test_a_low_first_baseline_or_another_rule_needs_a_reason(space: Workspace):
    """A metric that is judged for the first time needs none."""
    content = space.baseline()
    metrics = content["presets"]["default"]["metrics"]
    cosine_min = metrics.pop("cosine_min")
    space.edit_baseline(content)
    stored(space)
    assert set(space.metrics()) == {"cosine_mean", "cosine_min", "orthogonality"}

    metrics |= {"cosine_min": cosine_min, "recall": cosine_min}
    metrics["cosine_mean"]["tolerance"] = 0.001
    space.edit_baseline(content)
    why = refused(space)
    assert "cosine_mean has another tolerance in the baseline than in the model" in why
    assert "recall is in the baseline, but the model's evaluation does not judge it" in why

    space.stored.unlink()
    space.score(cosine_mean=0.9)
    assert "cosine_mean 0.9 misses the goal 0.99 (higher is better)" in refused(space)
    stored(space, why=WHY)


REVERSED = {"cosine_min_low": 0.99, "cosine_min_high": 0.9, "seeds": 5.0}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"cosine_min": None}, "cosine_min is NaN or infinite"),
        (REVERSED, "cosine_min has no interval: 0.99 to 0.9 is reversed"),
    ],
)
def test_what_is_never_stored(space: Workspace, changed: dict[str, Any], why: str):
    space.score(**changed)
    assert refused(space).startswith(f"allo is not promoted: {why}")
    assert refused(space, why=WHY) == refused(space)


def test_scores_of_something_else_or_a_damaged_baseline_are_never_stored(space: Workspace):
    space.train("b" * 64)
    why = "models/allo changed after allo was evaluated; run `make repro`"
    assert refused(space) == refused(space, why=WHY) == why
    space.score()
    space.edit_baseline("{")
    assert "`git checkout baselines/allo.json` restores it" in refused(space, why=WHY)


def workspace_of_smoke(space: Workspace) -> Workspace:
    work = workspace_of(space.root, "smoke")
    shutil.copytree(ROOT / "inputs", work / "inputs")
    with (work / "params.yaml").open("w") as file:
        YAML().dump(read_raw(ROOT, "smoke"), file)
    other = Workspace(work)
    other.train("c" * 64)
    return other


def test_promotions_of_two_presets_at_once_store_both(checkout: Path, monkeypatch: Patch):
    space = Workspace(checkout)
    workspace_of_smoke(space).score("smoke")
    monkeypatch.setattr(render, "text", lambda _: time.sleep(0.5))  # between reading and writing
    commands = (["promote", "allo"], ["promote", "allo", "--preset", "smoke"])
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(main, commands)) == [0, 0]
    entries = space.baseline()["presets"]
    runs = {name: entries[name]["provenance"]["run_key"] for name in entries}
    assert runs == {"default": "a" * 64, "smoke": "c" * 64}


def test_a_preset_is_promoted_from_its_own_workspace_and_others_are_not_concerned(
    space: Workspace, capsys: Capture
):
    other = workspace_of_smoke(space)
    other.score("smoke", cosine_mean=0.7)
    before = space.baseline()["presets"]["default"]
    assert gate_code(space, "smoke") == 4
    assert "preset 'smoke' has no baseline yet" in capsys.readouterr().err
    stored(space, preset="smoke")
    entries = space.baseline()["presets"]
    assert entries["default"] == before
    assert entries["smoke"]["metrics"]["cosine_mean"]["value"] == 0.7
    assert entries["smoke"]["metrics"]["cosine_mean"]["goal"] is None
    assert entries["smoke"]["provenance"]["run_key"] == "c" * 64
    assert not other.stored.exists()
    # Both presets hold at once, and nothing is to be evaluated again.
    assert gate_code(space) == gate_code(space, "smoke") == 0
    params = space.root / "params.yaml"
    params.write_text(params.read_text().replace("seed: 0", "seed: 1", 1))
    with pytest.raises(NotFresh, match=r"^params\.yaml changed .*; run `make repro PRESET=smoke M"):
        stored(space, preset="smoke")


@pytest.mark.parametrize("model", MODELS)
def test_committed_baselines_are_what_promote_writes(model: str):
    """Known presets, and rules that the code still has."""
    content = json.loads((ROOT / "baselines" / f"{model}.json").read_text())
    for preset, entry in content["presets"].items():
        config = getattr(read_params(ROOT, preset), model)
        for rule in rules_of(model, preset, config):
            stored_metric = StoredMetric.model_validate(entry["metrics"][rule.metric])
            assert stored_metric.differs_from(rule) is None


def test_a_recording_is_stored_for_the_next_to_be_compared_with(space: Workspace):
    params = read_params(space.root)
    config = SimpleNamespace(is_recorded=True, env=SimpleNamespace(columns=("x",)))
    assert drift.recording_part(space.root, "allo", config) == {}  # data/allo is not there
    walks = {"table/observations": np.float32([[0.1], [2]]), "train/state": np.arange(100) % 2}
    folders.save(space.data, {"dataset.safetensors": walks}, {})
    learned = drift.recording_part(space.root, "allo", config)["recording"]
    assert {*learned["x"]} == {0.1, 2}
    assert drift.accepted(space.root, "allo", params) is None
    baseline = space.baseline()
    baseline["presets"]["default"]["provenance"]["recording"] = learned
    space.edit_baseline(baseline)
    assert drift.accepted(space.root, "allo", params) == learned
    shutil.rmtree(space.data)  # of what was evaluated
    assert gate_code(space) == 0
