"""A config is the defaults of the package, a preset and changes, or a line about what is wrong."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import quatrain
from quatrain.api import configs
from quatrain.api.results import Film
from tests.conftest import ROOT, params_with
from tests.pipeline.fixture_types import Patch

MAP = "XXXXX\nX...X\nX.X.X\nX...X\nXXXXX\n"


def test_importing_the_package_loads_no_library_and_names_what_it_offers():
    code = (
        "import sys; before = set(sys.modules); import quatrain; "
        "print(sorted(name for name in set(sys.modules) - before if not name.startswith('_'))); "
        "print(set(quatrain.__all__) - set(dir(quatrain)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd="/"
    )
    loaded, missing = done.stdout.splitlines()
    assert not {"numpy", "pydantic", "matplotlib", "jax", "torch"} & set(eval(loaded))
    assert missing == "set()"
    with pytest.raises(AttributeError, match="'quatrain' has no attribute 'fitt'"):
        quatrain.fitt  # noqa: B018


@pytest.mark.parametrize("preset", [None, "default", "smoke"])
def test_the_defaults_are_those_of_the_checkout(preset: str | None):
    overlay = {} if preset != "smoke" else configs.presets.parse(ROOT / "presets" / "smoke.yaml")
    for model in ("allo", "iqn", "actor_critic", "active_dynamics"):
        assert quatrain.config(model, preset) == getattr(params_with(overlay), model)


def test_changes_are_merged_as_presets_are():
    config = quatrain.config("allo", "smoke", train={"steps": 1000}, seeds=3)
    smoke = quatrain.config("allo", "smoke")
    assert (config.train.steps, config.seeds) == (1000, 3)
    assert config.network == smoke.network
    acting = {"epsilon": {"kind": "geometric", "start": 1.0, "end": 0.1, "decay": 0.5}}
    epsilon = quatrain.config("iqn", train={"acting": acting}).train.acting.epsilon
    assert epsilon.model_dump() == acting["epsilon"]


def test_a_file_is_named_by_a_path_from_the_current_folder(tmp_path: Path, monkeypatch: Patch):
    (tmp_path / "ring.txt").write_text(MAP)
    np.save(tmp_path / "plate.npy", np.linspace(1.0, 9.0, 600))
    monkeypatch.chdir(tmp_path)
    config = quatrain.config("allo", env={"layout": "ring.txt"}, network={"d": 4})
    assert config.env.map.walls.shape == (5, 5)
    plates = {"plates": "user", "plates_file": "plate.npy", "n_train": 1, "n_held_out": 1}
    collect = quatrain.config("actor_critic", collect=plates | {"n_outside": 0}).collect
    assert len(collect.plates_file.numbers) == 600


LOOP: dict[str, Any] = {}
LOOP["train"] = [LOOP]
REFUSALS: dict[str, Callable[[], Any]] = {
    "unknown model 'alo'; did you mean 'allo'?; known: allo, iqn": lambda: quatrain.config("alo"),
    "unknown preset 'smok'; did you mean 'smoke'?; ": lambda: quatrain.config("allo", "smok"),
    "quatrain: allo.trian: unknown key; did you mean 'train'?; remove or correct it": (
        lambda: quatrain.fit("allo", trian={"steps": 10})
    ),
    "quatrain: iqn.train.target.copy_every: is missing; give it a value": (
        lambda: quatrain.config("iqn", train={"target": {"kind": "hard"}})
    ),
    "quatrain: allo.env.layout = 'no.txt': no.txt: is not there; a relative path starts in ": (
        lambda: quatrain.config("allo", env={"layout": "no.txt"})
    ),
    "quatrain: seed = -1: Input should be gr": lambda: quatrain.fit("allo", seed=-1),
    "quatrain: device = 'tpu': Input should be ": lambda: quatrain.fit("allo", device="tpu"),
    "config is of type AlloConfig, not that of iqn; make one with quatrain.config('iqn')": (
        lambda: quatrain.fit("iqn", config=quatrain.config("allo"))
    ),
    "config is complete, so that seeds has no place beside it; give it to quatrain.config, ": (
        lambda: quatrain.fit("allo", config=quatrain.config("allo"), seeds=2)
    ),
    "unknown model []; known: allo, iqn": lambda: quatrain.config([]),
    "preset is of type list; give the name of a": lambda: quatrain.config("allo", []),
    "quatrain: is nested too deep, or holds": lambda: quatrain.config("allo", train=LOOP),
    "env is an instance of CartPoleEnv, which cannot be made again; give what makes it: ": (
        lambda: quatrain.fit(
            "actor_critic", env=gymnasium.make("CartPole-v1").unwrapped.__class__()
        )
    ),
    "quatrain: actor_critic.steps: unknown key; it is train.transitions, as in train={'trans": (
        lambda: quatrain.config("actor_critic", steps=10000)
    ),
    "quatrain: actor_critic.train.steps: unknown key; it is train.transitions, as in ": (
        lambda: quatrain.config("actor_critic", train={"steps": 10000})
    ),
    "quatrain: iqn.n_step: unknown key; it is train.loss.n_step, as in train={'loss': {'n_step": (
        lambda: quatrain.config("iqn", n_step=3)
    ),
    "quatrain: iqn.train.turns: unknown key; it is train.turns, as in train={'turns': ...}": (
        lambda: quatrain.config("iqn", **{"train.turns": 3})
    ),
    "unknown model 'PPO'; it is 'actor_critic' here; known: ": lambda: quatrain.config("PPO"),
    "quatrain: actor_critic.env.max_episode_steps: unknown key; did you mean 'max_steps'?; an ": (
        lambda: quatrain.fit("actor_critic", env={"max_episode_steps": 50})
    ),
    "preset 'smoke' has no settings of iqn for an environment of your own; leave preset out, or ": (
        lambda: quatrain.fit("iqn", "smoke", env="CartPole-v1")
    ),
    "id is of type int; give the id of an environment, such as ": lambda: quatrain.make(5),
    "num_envs is True; give a whole number from 1": lambda: quatrain.make("Grid-v0", True),
    "num_envs is of type float; give a whole ": lambda: quatrain.make("Grid-v0", num_envs=1.5),
    "path is 'a\\x00b', which no disk can have; choose": lambda: quatrain.load("a\0b"),
    "path is '\\ud800', which no disk can have; choose": lambda: Film(b"", "").save("\ud800"),
    "path is ''; give the path of a folder or file, as text": lambda: quatrain.load(""),
    "path is of type NoneType; give the path of ": lambda: Film(b"", "").save(None),
    "b.mp4: a film is saved as GIF; name a file that ": lambda: Film(b"", "").save("b.mp4"),
    "result is of type int; give what quatrain.fit or ": lambda: quatrain.evaluate(5),
}


@pytest.mark.parametrize("line", REFUSALS)
def test_what_cannot_be_used_is_one_line_that_says_why(line: str):
    with pytest.raises(quatrain.ConfigError) as error:
        REFUSALS[line]()
    assert str(error.value).startswith(line)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, ValueError)


def test_a_users_environment_starts_from_its_preset_if_none_is_named():
    for kind, name in {"gymnasium": "a:b", "pettingzoo": "pursuit:parallel_env"}.items():
        env = {"kind": kind, "import": name}
        assert quatrain.config("iqn", env=env) == quatrain.config("iqn", "gymnasium", env=env)


def test_what_a_preset_says_of_its_example_is_not_true_of_another_environment():
    env = quatrain.config("actor_critic", "images", env={"max_episode_steps": 7}).env
    assert (env.id, env.max_episode_steps, len(env.wrappers)) == ("MiniGrid-Empty-5x5-v0", 7, 2)
    for other in ("CartPole-v1", {"id": "CartPole-v1"}):
        env = quatrain.config("actor_critic", "images", env=other).env
        assert env == quatrain.config("actor_critic", env="CartPole-v1").env
