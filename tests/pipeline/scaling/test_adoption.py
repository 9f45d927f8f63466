"""The preset of a sweep is the trial that it names, whatever was searched."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pipeline.scaling.adoption import (
    NOTHING_BETTER,
    check_preset,
    difference,
    obstacle,
    remove_preset,
    write_preset,
)
from pipeline.scaling.driver import result_of
from pipeline.scaling.plan import Ledger
from pipeline.scaling.records import Trial
from pipeline.scaling.result import SweepResult
from pipeline.scaling.space import Space
from pipeline.storage.params_file import read_params
from quatrain.errors import ConfigError
from quatrain.presets import parse
from quatrain.registry import MODELS
from quatrain.validation import overlaid
from tests.conftest import ROOT
from tests.pipeline.small_sweep import HIDDEN, RATE, space_of, trial

IQN = {"model": "iqn", "judge": "score", "schedule": {"kind": "none"}}
HARD = {"kind": "hard", "copy_every": 50}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What params.yaml needs, to be changed."""
    root = tmp_path / "root"
    root.mkdir()
    for name in ("inputs", "baselines", "presets"):
        shutil.copytree(ROOT / name, root / name)
    shutil.copy(ROOT / "params.yaml", root)
    return root


def searched(tmp_path: Path, root: Path, key: str, values: list[Any], **changes: Any) -> Space:
    return space_of(tmp_path, root, **changes, space={key: {"of": values}})


def assert_is_the_trial(space: Space, trial: Trial) -> None:
    """What `make repro PRESET=NAME` reads is what the trial ran with, but for the name."""
    adopted = read_params(space.root, space.name)
    params = space.params(trial.values, trial.seed, trial.seeds)
    assert adopted.preset == "tried"
    others = {"preset", "checkpoint_seconds", *MODELS} - {space.sweep.model}
    assert adopted.model_dump(exclude=others) == params.model_dump(exclude=others)


CASES: list[tuple[str, list[Any], Any, dict[str, Any]]] = [
    (RATE, [1e-3, 2.5e-3], 2.5e-3, {}),
    (RATE, [1e-3, 1.2345678901234567e-05], 1.2345678901234567e-05, {}),
    (HIDDEN, [64, 256], 256, {}),
    ("train.discount", [0.9, [0.2, 0.7, 0.7]], [0.2, 0.7, 0.7], {}),
    ("train.dual_clip", [100.0, None], None, {}),
    ("train.lr_schedule", ["cosine", "constant"], "constant", {}),
    ("train.target", [{"kind": "polyak", "rate": 0.01}, HARD], HARD, IQN),
    ("train.target", [HARD, {"kind": "polyak", "rate": 0.5}], {"kind": "polyak", "rate": 0.5}, IQN),
    ("train.target.rate", [0.01, 0.5], 0.5, IQN),
    ("train.acting.epsilon.over_transitions", [2000, 300], 300, IQN),
]


@pytest.mark.parametrize(
    ("key", "values", "value", "changes"), CASES, ids=lambda case: str(case)[:25]
)
def test_the_preset_is_the_trial(
    key: str,
    values: list[Any],
    value: Any,
    changes: dict[str, Any],
    tmp_path: Path,
    root: Path,
):
    space = searched(tmp_path, root, key, values, **changes, cpus=3)
    best = trial(4, 0.9, values={key: value})
    path = write_preset(space, best)
    assert path == root / "presets" / "tried.yaml"
    head, _, _ = path.read_text().partition("\n")
    assert head == "# Written by `make sweep SWEEP=sweeps/tried.yaml`: trial 4."
    assert_is_the_trial(space, best)


def test_the_preset_of_a_confirmed_trial_has_its_seed_and_its_seeds(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    values = {RATE: 2e-3, HIDDEN: 128}
    best = trial(9, 0.9, role="confirm", repeats=4, values=values, seed=7, seeds=4)
    write_preset(space, best)
    assert_is_the_trial(space, best)
    adopted = read_params(root, "tried")
    assert (adopted.seed, adopted.allo.seeds) == (7, 4), "not those that the file has now"


def result_of_trials(space: Space, *trials: Trial) -> SweepResult:
    ledger = Ledger(space.root / "trials", is_higher_better=True)
    ledger.trials = {each.number: each for each in trials}
    return result_of(space, ledger)


def confirming(number: int, repeats: int, score: float | None, **setting: int) -> Trial:
    state = "finished" if score is not None else "failed"
    changes = {"seed": 1, "seeds": 5, "repeats": repeats, "state": state} | setting
    return trial(number, score, role="confirm", **changes)


def test_only_a_winner_that_was_confirmed_as_the_file_says_is_adopted(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    first_runs = [trial(0, 0.5, role="start"), trial(1, 0.9), trial(2, state="stopped")]
    start, best = confirming(3, 0, 0.5), confirming(4, 1, 0.8)
    assert obstacle(space, result_of_trials(space, *first_runs, start, best)) is None
    worse = confirming(4, 1, 0.4)
    assert obstacle(space, result_of_trials(space, *first_runs, start, worse)) == NOTHING_BETTER
    unsure = [(confirming(3, 0, None), best), (start, confirming(4, 1, None)), (start,)]
    unsure.append((start, confirming(4, 1, 0.8, seeds=2)))
    for repeats in unsure:
        reason = obstacle(space, result_of_trials(space, *first_runs, *repeats))
        assert reason == "trials could not be confirmed; the table says why"
    assert obstacle(space, result_of_trials(space, trial(1))) == "no trial has a score"
    assert obstacle(space, result_of_trials(space, first_runs[0], first_runs[2])) == NOTHING_BETTER


def test_a_preset_holds_no_value_that_params_yaml_has(tmp_path: Path, root: Path):
    path = write_preset(space_of(tmp_path, root, cpus=2), trial(3, values={RATE: 2e-3, HIDDEN: 64}))
    assert parse(path) == {
        "preset": "tried",
        "device": "cpu",
        "allo": {
            "seeds": 3,
            "collect": {"num_envs": 200, "steps_per_env": 500},
            "network": {"hidden": 64, "layers": 2},
            "train": {"steps": 2000, "evaluate_every": 500, "learning_rate": 2e-3},
        },
    }


def test_a_preset_of_someone_else_is_refused_and_kept(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    path = root / "presets" / "tried.yaml"
    path.write_text("preset: tried\nseed: 4\n")
    for refused in (check_preset, remove_preset):
        with pytest.raises(ConfigError) as caught:
            refused(space)
        assert str(caught.value) == (
            "presets/tried.yaml is there, and this sweep did not write it; "
            "rename sweeps/tried.yaml or the preset"
        )
    assert path.read_text() == "preset: tried\nseed: 4\n"


def test_a_sweep_replaces_and_removes_its_own_preset(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    check_preset(space)
    for number, rate in ((1, 2e-3), (2, 3e-3)):
        check_preset(space)
        write_preset(space, trial(number, 0.5, values={RATE: rate, HIDDEN: 64}))
        assert read_params(root, "tried").allo.train.learning_rate == rate
    remove_preset(space)
    assert not (root / "presets" / "tried.yaml").exists()
    remove_preset(space)


def change_params(root: Path, old: str, new: str) -> None:
    text = (root / "params.yaml").read_text()
    assert text.count(old) == 1
    (root / "params.yaml").write_text(text.replace(old, new))


def test_the_preset_is_the_trial_even_if_params_yaml_changed(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    best = trial(1, 0.5, values={RATE: 2e-3, HIDDEN: 64})
    change_params(root, "    d: 11 ", "    d: 7 ")
    write_preset(space, best)
    assert_is_the_trial(space, best)
    assert read_params(root, "tried").allo.network.d == 11


@pytest.mark.parametrize(
    ("new", "reason"),
    [
        (
            "      parameters: {w: 2.0} ",
            "presets/tried.yaml would not give the params of trial 2",
        ),
        ("      parametres: {} ", "params.yaml: active_dynamics.env.field.parametres: unknown key"),
    ],
)
@pytest.mark.parametrize("is_first", [True, False])
def test_what_cannot_be_made_a_preset_any_more_is_refused_and_nothing_is_written(
    new: str, reason: str, is_first: bool, tmp_path: Path, root: Path
):
    changes = {"model": "active_dynamics", "judge": "field_nrmse.active"}
    space = searched(tmp_path, root, "env.dt", [0.1, 0.2], **changes, schedule={"kind": "none"})
    best = trial(1, 0.5, values={"env.dt": 0.2})
    if not is_first:
        write_preset(space, best)
    before = sorted((path, path.read_text()) for path in (root / "presets").iterdir())
    change_params(root, "      parameters: {} ", new)
    with pytest.raises(ConfigError) as caught:
        write_preset(space, best.model_copy(update={"number": 2}))
    assert str(caught.value).startswith(reason)
    assert sorted((path, path.read_text()) for path in (root / "presets").iterdir()) == before


@pytest.mark.parametrize(
    ("old", "new", "changes"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, {"a": {"c": 3}}),
        ({"a": [1, 2]}, {"a": [2]}, {"a": [2]}),
        ({"target": {"kind": "polyak", "rate": 1}}, {"target": HARD}, {"target": HARD}),
        ({"a": 1}, {"a": None}, {"a": None}),
    ],
)
def test_a_difference_makes_the_new_of_the_old(
    old: dict[str, Any], new: dict[str, Any], changes: dict[str, Any]
):
    assert difference(old, new) == changes
    assert overlaid(old, changes) == new
    assert difference(new, new) == {}
