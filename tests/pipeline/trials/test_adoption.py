"""The preset of a sweep is the trial that it names, whatever was searched."""

from pathlib import Path
from typing import Any

import pytest

from pipeline.storage.params_file import read_params
from pipeline.storage.run_key import params_of
from pipeline.trials.adoption import remove_preset, write_preset
from pipeline.trials.space import Space
from pipeline.trials.trial import Trial, make_trial
from quatrain.errors import ConfigError
from quatrain.presets import parse
from tests.pipeline.trials.small_sweep import HIDDEN, IQN, RATE, space_of

HARD = {"kind": "hard", "copy_every": 50}
LINEAR = {"kind": "linear", "end": 0.1}


def searched(tmp_path: Path, root: Path, key: str, values: list[Any], **changes: Any) -> Space:
    return space_of(tmp_path, root, **changes, space={key: {"of": values}})


def trial_of(space: Space, seed: int | None = None, **values: Any) -> Trial:
    raw = space.trial_raw(values, seed)
    return make_trial(space.root, space.sweep.model, raw)


def assert_is_the_trial(space: Space, trial: Trial) -> None:
    """What `make repro PRESET=NAME` reads is what the trial ran with, but for the name."""
    adopted = read_params(space.root, space.name)
    assert adopted.preset == "tried"
    assert params_of(adopted, trial.model) == params_of(trial.params, trial.model)


CASES: list[tuple[str, list[Any], Any, dict[str, Any]]] = [
    (RATE, [1e-3, 1.2345678901234567e-05], 1.2345678901234567e-05, {}),
    ("train.dual_clip", [100.0, None], None, {}),
    ("train.target", [{"kind": "polyak", "rate": 0.01}, HARD], HARD, IQN),
    # The preset of the start has `over_transitions` of this section.
    ("train.acting.epsilon", [LINEAR, LINEAR | {"end": 0.2}], LINEAR, IQN),
]


@pytest.mark.parametrize(
    ("key", "values", "value", "changes"), CASES, ids=lambda case: str(case)[:25]
)
def test_the_preset_is_the_trial(
    key: str, values: list[Any], value: Any, changes: dict[str, Any], tmp_path: Path, root: Path
):
    space = searched(tmp_path, root, key, values, **changes, cpus=3)
    best = trial_of(space, 7, **{key: value})
    write_preset(space, best, 4)
    head, _, _ = (root / "presets" / "tried.yaml").read_text().partition("\n")
    assert head == "# Written by `make sweep SWEEP=sweeps/tried.yaml`: trial 4."
    assert_is_the_trial(space, best)
    assert read_params(root, "tried").seed == 7


def test_a_preset_is_that_of_the_start_for_its_model_with_what_the_trial_changed(
    tmp_path: Path, root: Path
):
    space = space_of(tmp_path, root, cpus=2)
    write_preset(space, trial_of(space, **{RATE: 2e-3, HIDDEN: 64}), 3)
    assert parse(root / "presets" / "tried.yaml") == {
        "preset": "tried",
        "seed": 0,
        "device": "cpu",
        "devices": 1,
        "threads": 2,
        "allo": {
            "seeds": 3,
            "collect": {"num_envs": 200, "steps_per_env": 500},
            "network": {"hidden": 64, "layers": 2},
            "train": {"steps": 2000, "evaluate_every": 500, "learning_rate": 2e-3},
        },
    }


def test_a_preset_of_someone_else_is_refused_and_kept(tmp_path: Path, root: Path):
    space = space_of(tmp_path, root)
    best = trial_of(space)
    remove_preset(space)  # which is not there
    path = root / "presets" / "tried.yaml"
    path.write_text("preset: tried\nseed: 4\n")
    reason = "^presets/tried.yaml is there, and this sweep did not write it; rename sweeps/tried.ya"
    for refused in (lambda: remove_preset(space), lambda: write_preset(space, best, 1)):
        with pytest.raises(ConfigError, match=reason):
            refused()
    assert path.read_text() == "preset: tried\nseed: 4\n"


def test_what_cannot_be_made_a_preset_any_more_is_refused_and_nothing_is_written(
    tmp_path: Path, root: Path
):
    space = space_of(tmp_path, root)
    best = trial_of(space, **{RATE: 2e-3})
    params = root / "params.yaml"
    params.write_text(params.read_text().replace("    d: 11 ", "    d: 7 "))
    line = r"^presets/tried.yaml would not give trial 2; params, inputs or code were changed while"
    with pytest.raises(ConfigError, match=line):
        write_preset(space, best, 2)
    assert not (root / "presets" / "tried.yaml").exists()
