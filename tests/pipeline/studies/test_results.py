"""Scores over seeds: what is done is not done again, what is interrupted continues, and the table
holds what was scored.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ruamel.yaml import YAML

from pipeline.cli import main
from pipeline.judging.gate import rules_of
from pipeline.storage.checkpoints import Checkpoints
from pipeline.studies import results, seeds, training
from pipeline.studies.seeds import BEGIN, END, SeedResult
from pipeline.studies.training import train_resumed
from quatrain.errors import DataError
from quatrain.registry import MODELS, load
from quatrain.validation import overlaid
from tests.conftest import ROOT, SMALL, committed, params_with, shapes_unchecked
from tests.pipeline.fixture_types import Capture, Patch

TOP = f"# Results\n\n{BEGIN}\nold\n{END}\n\n## More\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: Patch) -> Path:
    """Returns a folder whose default preset takes a second, and whose page has a place."""
    with (tmp_path / "params.yaml").open("w") as file:
        YAML().dump(overlaid(committed(), SMALL | {"checkpoint_seconds": 1}), file)
    for name in ("presets", "inputs"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "docs").mkdir()
    (tmp_path / seeds.PAGE).write_text(TOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def result(**scores: float | None) -> SeedResult:
    return SeedResult("a", {"cpu": "some CPU"}, 5, 60.0, 2.0, scores)


def stored(project: Path) -> Any:
    return json.loads((project / seeds.RESULTS).read_text())


def test_a_model_is_trained_with_five_seeds_and_its_table_has_the_scores(
    project: Path, monkeypatch: Patch, capsys: Capture
):
    with shapes_unchecked():
        assert main(["results", "actor_critic"]) == 0
    entry = stored(project)["actor_critic"]
    assert (entry["seeds"], entry["scores"]["seeds"]) == (5, 5)
    assert entry["train_cpu_seconds"] > 0
    page = (project / seeds.PAGE).read_text()
    low, high = (entry["scores"][f"return_mean_iqm_{end}"] for end in ("low", "high"))
    score = entry["scores"]["return_mean_iqm"]
    row = f"| return_mean (higher) | 5 | {score:.4g} ({low:.4g} to {high:.4g}) |"
    assert row in page
    assert "old" not in page
    assert page.endswith(f"{END}\n\n## More\n")
    assert not list((project / results.CACHE).rglob("*.safetensors"))

    monkeypatch.setattr(results, "run_model", lambda *_: pytest.fail("trained again"))
    assert main(["results", "actor_critic"]) == 0
    assert main(["results", "--page"]) == 0
    assert (project / seeds.PAGE).read_text() == page
    assert row in capsys.readouterr().out


def test_each_result_is_stored_at_once_and_replicates_stay_as_many(
    project: Path, monkeypatch: Patch
):
    done = []

    def run_model(_root: Path, params: Any, model: str, key: str) -> SeedResult:
        done.append((model, getattr(params, model).seeds))
        if len(done) == 2:
            raise KeyboardInterrupt
        return result()._replace(key=key)

    monkeypatch.setattr(results, "run_model", run_model)
    assert [main(["results", "allo", "active_dynamics", *more]) for more in ([], [])] == [130, 0]
    assert done == [("allo", 5), ("active_dynamics", 5), ("active_dynamics", 5)]
    assert main(["results", "active_dynamics", "--seeds", "7"]) == 0
    assert done[-1] == ("active_dynamics", 7)
    assert set(stored(project)) == {"allo", "active_dynamics"}


class Cut(Exception):
    pass


@pytest.mark.parametrize("model", [*MODELS])
@pytest.mark.full
def test_an_interrupted_training_continues_and_ends_as_if_it_had_not_been(
    model: str, tmp_path: Path, monkeypatch: Patch
):
    params = params_with({**SMALL, model: SMALL[model] | {"seeds": 5}, "checkpoint_seconds": 1})
    module, config = load(model).train, getattr(params, model)
    dataset = load(model).collect.collect(config, 0)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    monkeypatch.setattr(training.time, "monotonic", iter(range(0, 10**6, 2)).__next__)
    with shapes_unchecked():
        (*_, expected) = module.train(config, dataset, params.seed + 1)
        save, saves = checkpoints.save, []

        def save_and_cut(step: int, arrays: Any) -> None:
            saves.append(step)
            save(step, arrays)
            if len(saves) == 1:
                raise Cut

        monkeypatch.setattr(checkpoints, "save", save_and_cut)
        with pytest.raises(Cut):
            train_resumed(params, model, dataset, checkpoints)
        trained = train_resumed(params, model, dataset, checkpoints)
    assert saves[0] < saves[1] <= expected.step
    arrays, again = module.to_arrays(expected.state), module.to_arrays(trained.state)
    assert arrays.keys() == again.keys()
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    assert trained.cpu_seconds >= float(checkpoints.latest().arrays[training.CPU_SECONDS])


@pytest.mark.usefixtures("project")
def test_too_few_seeds_and_a_page_without_a_place_are_refused(project: Path, capsys: Capture):
    assert main(["results", "--seeds", "4"]) == 2
    assert "--seeds 4: intervals need at least 5" in capsys.readouterr().err
    for text in ("", BEGIN, END + BEGIN, TOP + TOP):
        (project / seeds.PAGE).write_text(text)
        assert main(["results", "allo"]) == 3
        assert f"docs/results.md: needs the lines {BEGIN} and" in capsys.readouterr().err
        assert (project / seeds.PAGE).read_text() == text
    (project / seeds.PAGE).write_text(TOP)
    (project / seeds.RESULTS).parent.mkdir(parents=True)
    (project / seeds.RESULTS).write_text('{"allo": {}}')
    assert main(["results", "allo"]) == 3
    assert "make results` writes it anew" in capsys.readouterr().err


def test_a_row_has_interval_extremes_references_and_other_arms(tmp_path: Path):
    field, *_ = rules_of("active_dynamics", "default")
    replicates = {"field_nrmse.active": 0.08, "field_nrmse.active_low": 0.07}
    replicates |= {"field_nrmse.active_high": 0.09, "field_nrmse.prbs": 0.0926}
    replicates |= {"field_nrmse.prbs_low": 0.0, "zero_field": 1.0, "projection_floor": None}
    cells = seeds.row_of(field, result(**replicates)._replace(seeds=10))
    assert cells[:4] == ["field_nrmse.active (lower)", "10", "0.08 (0.07 to 0.09)", "-"]
    names = [line.rpartition(" ")[::2] for line in cells[4].split("<br>")]
    assert ("field_nrmse.prbs", "0.0926") in names
    assert ("zero_field", "1") in names
    assert ("projection_floor", "-") in names
    assert not any("low" in name for name, _ in names)

    learned, *_ = rules_of("actor_critic", "default")
    spread = {"_iqm": 8.41, "_iqm_low": 8.4, "_iqm_high": 8.42, "_least": 8.3, "_greatest": 8.5}
    scores = {f"return_mean{end}": value for end, value in spread.items()} | {"return_mean": 1.0}
    cells = seeds.row_of(learned, result(**scores))
    assert cells[1:4] == ["5", "8.41 (8.4 to 8.42)", "8.3 to 8.5"]
    rules = {"actor_critic": [learned, learned]}
    text = seeds.render(tmp_path, {"actor_critic": result(**scores)}, rules)
    first, second = [line for line in text.splitlines() if line.startswith("| actor_critic |")]
    assert first.endswith("feedback_return - | 12 |")
    assert second.endswith("feedback_return - |  |")
    assert text.endswith("on some CPU.")


def test_scores_that_bench_peers_notes_stand_below(tmp_path: Path):
    path = tmp_path / "benchmarks" / "results" / "peers.json"
    path.parent.mkdir(parents=True)
    content = json.loads((ROOT / "benchmarks" / "results" / "peers.json").read_text())
    note = "PPO on colonies, stable-baselines3, 5 seeds: mean return 8.420 (8.400..8.440)"
    path.write_text(json.dumps(content | {"notes": ["something else", note]}))
    assert seeds.peer_notes(tmp_path) == [f"* {note}"]
    path.write_text("{}")
    with pytest.raises(DataError):
        seeds.peer_notes(tmp_path)


def test_the_committed_page_holds_the_committed_results():
    done = seeds.read(ROOT)
    rules = {model: rules_of(model, "default") for model in done}
    page = (ROOT / seeds.PAGE).read_text()
    assert seeds.with_table(page, seeds.render(ROOT, done, rules)) == page
