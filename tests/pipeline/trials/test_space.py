"""A sweep's file becomes a space, or one line that says which key of it is wrong and why."""

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.trials.space import Dimension, Space, Values, read_space
from pipeline.trials.trial import make_trial
from quatrain.errors import ConfigError
from quatrain.params import Params
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Failure, Patch
from tests.pipeline.trials.small_sweep import HIDDEN, RATE, RATES, SWEEP, space_of, sweep_file


def searched(key: str, dimension: Any) -> dict[str, Any]:
    return {"space": {key: dimension}}


def asha(**changes: Any) -> dict[str, Any]:
    return {"schedule": {"kind": "asha", "first": 500, "factor": 3} | changes}


OF_DYNAMICS = {"model": "active_dynamics", "space": {"env.dt": {"between": [0.1, 0.2]}}}
BAD: list[tuple[dict[str, Any], str]] = [
    # The keys of a sweep.
    ({"model": "alo"}, "unknown model 'alo'; known: allo, iqn, "),
    ({"preset": "smoek"}, "unknown preset 'smoek'; did you mean 'smoke'?"),
    ({"preset": "tried"}, "a sweep cannot start from the preset that it writes; copy that one"),
    ({"judge": "cosine_men"}, "judge = 'cosine_men': is no gated metric that has a best end; did"),
    (OF_DYNAMICS | {"judge": "coverage_90.active"}, "is no gated metric that has a best end; n"),
    ({"preset": "paper", "seeds": 1024}, "with seeds = 1024: allo: record_every * batch_size * "),
    ({"gpus": 1.5}, "gpus = 1.5: several must be a whole number"),
    (asha(first=2000), "schedule.first = 2000: a trial has only 2,000 steps; compare earlier, or"),
    (asha(fist=3), "schedule.fist: unknown key; did you mean 'first'?"),
    ({"confirm": {"top": 2, "seed": 0, "seeds": 5}}, "confirm.seed = 0: the search's trials have "),
    # Ranges and choices.
    (searched(RATE, {"between": [1e-2, 1e-4]}), "the range is empty: 0.01 is not below 0.0001"),
    (searched(RATE, RATES | {"between": [0, 0.1]}), "a log scale needs positive numbers, not 0"),
    (searched(RATE, RATES | {"of": [1, 2]}), f"space.{RATE}: write either `between: [low, high]` "),
    (searched(RATE, {}), f"space.{RATE}: write either `between: [low, high]` or `of:"),
    (
        searched(HIDDEN, {"of": [64]}),
        f"space.{HIDDEN}.of = [64]: Tuple should have at least 2 item",
    ),
    # What params.yaml refuses at an end of a range, or as a choice.
    (searched(RATE, {"between": [1e-3, 11.0]}), f"space.{RATE} at 11.0: allo.{RATE} = 11.0: Input"),
    (searched("env.layout", {"of": ["room4", "x.txt"]}), "space.env.layout at 'x.txt': allo.env.l"),
    (searched("train.rate", RATES), "space.train.rate at 0.0001: allo.train.rate: unknown key; "),
    (
        searched("seeds", {"of": [1, 2]}),
        "space.seeds: is no key to search; all trials have `seeds`",
    ),
    # Grids.
    ({"search": "grid"}, f"search: grid needs `of: [value, ...]` in space.{RATE}"),
    (
        {"search": "grid", "space": SWEEP["space"] | {RATE: {"of": [1e-4, 1e-3]}}, "trials": 5},
        "the grid has 6 points; write trials: 6",
    ),
]


@pytest.mark.parametrize(("changes", "reason"), BAD, ids=[reason[:40] for _, reason in BAD])
def test_a_bad_sweep_is_one_line_with_its_file_and_its_key(
    changes: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: Patch, failure: Failure
):
    monkeypatch.chdir(ROOT)
    said = failure(main, "sweep", str(sweep_file(tmp_path, changes)), code=2)
    assert said.startswith("sweep: tried.yaml: ")
    assert reason in said


@pytest.mark.parametrize("name", ["Tried.yaml", "tried-2.yaml", "2.yaml", "default.yaml", "a.yml"])
def test_a_sweep_is_named_as_the_preset_that_it_writes(name: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=f"^{name}: a sweep is named as the preset that it write"):
        read_space(ROOT, sweep_file(tmp_path, {}, name))


def test_a_file_that_is_not_there_is_refused_with_the_nearest_and_all_others(tmp_path: Path):
    tried, width = (sweep_file(tmp_path, {}, name) for name in ("tried.yaml", "width.yaml"))
    absent = tmp_path / "wdith.yaml"
    with pytest.raises(ConfigError) as caught:
        read_space(ROOT, absent)
    said = f"{absent} is not there; did you mean '{width}'?; known: {tried}, {width}"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sweeps").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_committed_sweeps_can_be_run(path: Path):
    space = read_space(ROOT, path)
    assert space.name == path.stem
    assert space.start().keys() == space.sweep.space.keys()


# Trials.


def params_of(space: Space, values: Values, seed: int | None = None) -> Params:
    return make_trial(ROOT, space.sweep.model, space.trial_raw(values, seed)).params


def test_a_trial_has_the_preset_with_its_values_seeds_and_cpus(tmp_path: Path):
    space = space_of(tmp_path, cpus=2)
    params = params_of(space, {RATE: 0.004, HIDDEN: 32})
    assert (params.preset, params.device, params.threads, params.seed) == ("smoke", "cpu", 2, 0)
    assert (params.allo.train.learning_rate, params.allo.network.hidden) == (0.004, 32)
    assert (params.allo.seeds, params.allo.network.layers, params.allo.train.steps) == (3, 2, 2000)
    assert params_of(space, {HIDDEN: 32}, 1).seed == 1
    shared, several = (params_of(space_of(tmp_path, gpus=gpus), {}) for gpus in (0.5, 3))
    assert (shared.device, shared.devices, several.devices) == ("cuda", 1, 3)
    assert space.start() == {RATE: 1e-3, HIDDEN: 64}
    assert params_of(space, space.start()) == params_of(space, {})


def test_values_of_any_kind_are_labels_that_tell_them_apart():
    values = ((0.9, 0.8), {"kind": "hard", "copy_every": 5}, None, 1, 1.0, True, "1")
    dimension = Dimension.model_validate({"of": values})
    assert [json.loads(label) for label in dimension.labels] == [[0.9, 0.8], *values[1:]]
    assert len(set(dimension.labels)) == len(values)
    # Mappings with the same keys in another order are one value.
    assert dimension.stored({"copy_every": 5, "kind": "hard"}) == dimension.labels[1]
    assert dimension.stored(2) is None


@pytest.mark.parametrize(
    ("value", "stored"), [(1, 1), (2.5, 2.5), (3, 3), (0.9, None), (4, None), (None, None)]
)
def test_a_value_of_the_start_is_stored_if_it_lies_in_the_range(value: Any, stored: Any):
    assert Dimension.model_validate({"between": (1, 3)}).stored(value) == stored
