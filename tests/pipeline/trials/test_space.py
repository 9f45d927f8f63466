"""A sweep's file becomes a space, or one line that says which key of it is wrong and why."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.trials import sweep as sweeps
from pipeline.trials.space import Dimension, Space, Values, read_space
from pipeline.trials.trial import make_trial
from quatrain.errors import ConfigError
from quatrain.params import Params
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.trials.small_sweep import (
    ABSENT,
    HIDDEN,
    RATE,
    RATES,
    SWEEP,
    read_params_once,
    space_of,
    sweep_file,
)

HEAVY = ("ray", "optuna", "jax", "torch", "mlflow", "matplotlib")


@pytest.fixture(autouse=True, scope="module")
def params_are_read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_params_once(patch)
        yield


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"confirm": {"top": 2, "seed": 1, "seeds": 3}}, "confirm.seeds = 3: fewer than 4 seeds"),
        ({"confirm": {"top": 2, "seed": 1, "seeds": 4}}, ""),
        ({"confirm": None}, "confirm = null: the best of many trials is adopted, and is partly"),
    ],
    ids=["few", "enough", "none"],
)
def test_seeds_too_few_to_decide_are_said_before_a_sweep_begins(
    tmp_path: Path, capsys: Capture, changes: dict[str, Any], said: str
):
    sweeps.warn_of_few_seeds(space_of(tmp_path, **changes))
    printed = capsys.readouterr().err
    assert said in printed
    assert bool(printed) == bool(said)


def searched(key: str, dimension: Any) -> dict[str, Any]:
    return {"space": {key: dimension}}


def asha(**changes: Any) -> dict[str, Any]:
    return {"schedule": {"kind": "asha", "first": 500, "factor": 3} | changes}


def confirmed(**changes: Any) -> dict[str, Any]:
    return {"confirm": {"top": 2, "seed": 1, "seeds": 5} | changes}


OF_DYNAMICS = {"model": "active_dynamics", "space": {"env.dt": {"between": [0.1, 0.2]}}}
OF_PAPER = {"preset": "paper", "schedule": {"kind": "none"}}
BAD: list[tuple[dict[str, Any], str]] = [
    # The keys of a sweep.
    ({"model": "alo"}, "model = 'alo': no such model; did you mean 'allo'?"),
    ({"preset": "smoek"}, "preset: unknown preset 'smoek'; did you mean 'smoke'?"),
    ({"preset": "tried"}, "a sweep cannot start from the preset that it writes; copy that one"),
    ({"preset": ABSENT}, "preset: is missing (`default` or a file of presets/"),
    ({"judge": "loss"}, "judge = 'loss': allo is not judged by it; judged: cosine_mean, cosine_m"),
    (OF_DYNAMICS | {"judge": "coverage_90.active"}, "is held near a value; name one that has a be"),
    (OF_PAPER | {"seeds": 1024}, "with seeds = 1024: allo: record_every * batch_size * seeds = "),
    ({"trials": 0}, "trials = 0: Input should be greater than or equal to 1 (how many points"),
    ({"gpus": 1.5}, "gpus = 1.5: several must be a whole number"),
    ({"search": "bayes"}, "search = 'bayes': Input should be 'tpe', 'random' or 'grid'"),
    # How trials are stopped and confirmed.
    (asha(first=2000), "schedule.first = 2000: a trial has only 2,000 steps; compare earlier, or"),
    (asha(fist=3), "schedule.fist: unknown key; did you mean 'first'?"),
    (asha(kind="none"), "schedule.first: unknown key; remove or correct it"),
    (
        asha(kind="pbt"),
        "schedule: Input tag 'pbt' found using 'kind' does not match any of the e",
    ),
    (
        confirmed(seed=0),
        "confirm.seed = 0: the search's trials have seed = 0; others show what was luck",
    ),
    (confirmed(sedes=5), "confirm.sedes: unknown key; did you mean 'seeds'?"),
    # Ranges and choices.
    ({"space": {}}, "space: Dictionary should have at least 1 item"),
    (searched(RATE, {"between": [1e-2, 1e-4]}), "the range is empty: 0.01 is not below 0.0001"),
    (searched(RATE, RATES | {"between": [0, 0.1]}), "a log scale needs positive numbers, not 0"),
    (searched(RATE, {"between": [1e-4]}), f"space.{RATE}.between = [0.0001]: has too few values"),
    (searched(RATE, {"between": [1.0, float("inf")]}), "between.1 = inf: Input should be a"),
    (searched(RATE, RATES | {"of": [1, 2]}), f"space.{RATE}: write either `between: [low, high]` "),
    (
        searched(RATE, {}),
        f"space.{RATE}: write either `between: [low, high]` or `of:",
    ),
    (searched(HIDDEN, {"of": [64, 32, 64]}), "`of` needs two or more values, none of them twice"),
    (searched(HIDDEN, {"off": [64]}), f"space.{HIDDEN}.off: unknown key"),
    # What params.yaml refuses at an end of a range, or as a choice.
    (
        searched(RATE, {"between": [1e-3, 11.0]}),
        f"space.{RATE} at 11.0: allo.{RATE} = 11.0: Input should be less than or equal to 10",
    ),
    (
        searched("train.discount", {"of": [0.9, [0.9, 2.0]]}),
        "space.train.discount at [0.9, 2.0]: allo.train: discount (0.9, 2.0) must be a number, or",
    ),
    (
        searched("env.layout", {"of": ["room4", "inputs/allo/absent.txt"]}),
        "space.env.layout at 'inputs/allo/absent.txt': allo.env.layout = ",
    ),
    (
        searched("train.learning_rat", RATES),
        "space.train.learning_rat at 0.0001: allo.train.learning_rat: unknown key; did you mean "
        "'learning_rate'?",
    ),
    (searched("seeds", {"of": [1, 2]}), "space.seeds: is no key to search; remove or correct it"),
    (searched("train.", {"of": [1, 2]}), "space.train.: is no key to search"),
    # Grids.
    ({"search": "grid"}, f"search: grid needs `points` in space.{RATE}"),
    (
        {"search": "grid", "space": SWEEP["space"] | {RATE: RATES | {"points": 5}}},
        "the grid has 15 points; write trials: 15",
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
    sweep_file(tmp_path, {})
    width = sweep_file(tmp_path, {}, "width.yaml")
    with pytest.raises(ConfigError) as caught:
        read_space(ROOT, tmp_path / "wdith.yaml")
    others = f"known: {tmp_path / 'tried.yaml'}, {width}"
    said = f"{tmp_path / 'wdith.yaml'} is not there; did you mean '{width}'?; {others}"
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("space: [", "tried.yaml line 1, column 9: expected the node content"),
        ("", "tried.yaml: is empty; expected `key: value` lines"),
        ("- model: allo", "tried.yaml: holds a list; expected `key: value` lines"),
        ("model: !!python/name:os.system x", "tried.yaml line 1: tag tag:yaml.org,2002:python/"),
        ("model: allo\nmodel: iqn", 'tried.yaml line 2, column 1: found duplicate key "model"'),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused(text: str, reason: str, tmp_path: Path):
    (tmp_path / "tried.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_space(ROOT, tmp_path / "tried.yaml")
    assert str(caught.value).startswith(reason)


REFUSALS = f"""
import sys
from pipeline.cli import main
print(*[main(["sweep", path, "--cpus", "3"]) for path in sys.argv[1:]])
print(*sorted(set({HEAVY}) & sys.modules.keys()))
"""


def test_a_sweep_is_refused_without_any_heavy_import(tmp_path: Path):
    misspelt = sweep_file(tmp_path, {"model": "alo"})
    wide = sweep_file(tmp_path, {"cpus": 256}, "wide.yaml")
    command = [sys.executable, "-c", REFUSALS, str(misspelt), str(wide)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (process.stdout, process.returncode) == ("2 5\n\n", 0)
    assert process.stderr.splitlines() == [
        "sweep: tried.yaml: model = 'alo': no such model; did you mean 'allo'?; "
        "allo, iqn, actor_critic, active_dynamics [exit 2]",
        "sweep: a trial needs 256 CPUs, and this machine offers 3; "
        "lower `cpus`, or name a cluster by --address [exit 5]",
    ]


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
    assert params_of(space_of(tmp_path, gpus=0.5), {}).device == "cuda"


def test_another_kind_replaces_the_whole_section_and_the_same_kind_only_what_it_names(
    tmp_path: Path,
):
    key = "train.target"
    targets = [{"kind": "hard", "copy_every": 50}, {"kind": "polyak", "rate": 0.5}]
    changes = {"model": "iqn", "judge": "score", "schedule": {"kind": "none"}}
    space = space_of(tmp_path, **changes, space={key: {"of": targets}})
    sections = [space.trial_raw({key: target})["iqn"]["train"]["target"] for target in targets]
    assert sections == targets
    rate = space_of(tmp_path, **changes, space={"train.target.rate": {"between": [0.1, 0.2]}})
    section = rate.trial_raw({"train.target.rate": 0.15})["iqn"]["train"]["target"]
    assert section == {"kind": "polyak", "rate": 0.15}
    assert rate.start() == {"train.target.rate": 0.01}


def test_the_direction_is_that_of_the_gate(tmp_path: Path):
    assert space_of(tmp_path, judge="cosine_min").is_higher_better
    assert not space_of(tmp_path, judge="orthogonality").is_higher_better


def test_the_start_changes_nothing(tmp_path: Path):
    space = space_of(tmp_path)
    start = space.start()
    assert start == {RATE: 1e-3, HIDDEN: 64}
    assert params_of(space, start) == params_of(space, {})


# Dimensions.


def test_values_that_are_lists_or_mappings_are_plain_json_again():
    values = [[0.9, 0.8], {"kind": "hard", "copy_every": 5}, None, 1, 1.0, True, "1"]
    dimension = Dimension.model_validate({"of": tuples_of(values)})
    assert dimension.ends == values
    assert [type(choice) for choice in dimension.ends] == [type(value) for value in values]
    assert dimension.labels[1] == '{"copy_every": 5, "kind": "hard"}'
    assert dimension.grid() == dimension.ends
    assert [dimension.from_stored(dimension.to_stored(value)) for value in values] == values


def tuples_of(values: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values)


def test_mappings_with_the_same_keys_in_another_order_are_one_value():
    twice = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    with pytest.raises(ValueError, match="none of them twice"):
        Dimension.model_validate({"of": twice})


@pytest.mark.parametrize(
    ("dimension", "points"),
    [
        ({"between": (0.0, 1.0), "points": 5}, [0.0, 0.25, 0.5, 0.75, 1.0]),
        ({"between": (1e-4, 1e-2), "scale": "log", "points": 3}, [1e-4, 1e-3, 1e-2]),
        ({"between": (1, 64), "scale": "log", "points": 4}, [1, 4, 16, 64]),
        ({"between": (1, 3), "points": 9}, [1, 2, 3]),
        ({"between": (1, 2.0), "points": 2}, [1.0, 2.0]),
        ({"of": ("b", "a")}, ["b", "a"]),
    ],
)
def test_a_grid_has_both_ends_and_equal_steps(dimension: dict[str, Any], points: list[Any]):
    grid = Dimension.model_validate(dimension).grid()
    assert grid == pytest.approx(points) if isinstance(points[0], float) else grid == points
    assert [type(value) for value in grid] == [type(value) for value in points]
    assert (grid[0], grid[-1]) == (points[0], points[-1])


def test_the_last_key_of_a_grid_changes_fastest(tmp_path: Path):
    keys = {HIDDEN: {"of": [32, 64]}, RATE: RATES | {"points": 2}}
    space = space_of(tmp_path, search="grid", trials=4, space=keys)
    points = [(point[HIDDEN], point[RATE]) for point in space.grid()]
    assert points == [(32, 1e-4), (32, 1e-2), (64, 1e-4), (64, 1e-2)]
