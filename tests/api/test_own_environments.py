"""Results in environments of users: saved, loaded, served and scored again."""

import json
import pickle
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Dict, MultiBinary

import quatrain
from quatrain.api import own_episodes
from quatrain.api.results import Result
from quatrain.errors import DataError, DatasetMismatch
from quatrain.registry import load as load_modules
from quatrain.storage import folders, formats
from tests.conftest import params_with, shapes_unchecked
from tests.models.actor_critic import user_envs as of_actor_critic
from tests.models.allo import test_user_env as of_allo
from tests.models.iqn import user_envs as of_iqn
from tests.own_envs import Doors
from tests.pipeline.fixture_types import Patch

LEARNERS = ("actor_critic", "allo", "iqn")
FITTED: dict[str, Result] = {}


def config_of(model: str) -> Any:
    """Returns the config of a learner that takes seconds."""
    if model == "allo":
        config = of_allo.config_with()
        brief = {"steps": 20, "record_every": 10, "evaluate_every": 10}
        return config.model_copy(update={"train": config.train.model_copy(update=brief)})
    section = of_iqn.section("Corridor")
    if model == "actor_critic":
        section = of_actor_critic.section("Signs")
        section["train"] |= {"transitions": 7 * 16, "record_every": 1, "evaluate_every": 0}
    return getattr(params_with({model: section}), model)


@pytest.fixture(params=LEARNERS)
def result(request: pytest.FixtureRequest) -> Result:
    """A trained learner of each model; tests do not change it."""
    model = request.param
    if model not in FITTED:
        with shapes_unchecked():
            config = config_of(model)
            FITTED[model] = quatrain.fit(model, config=config, threads=1, progress=False)
    return FITTED[model]


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A file that the import of the module `leaves_a_mark` writes."""
    path = tmp_path / "mark"
    source = f"from pathlib import Path\nPath({str(path)!r}).touch()\n"
    (tmp_path / "leaves_a_mark.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "leaves_a_mark", raising=False)
    return path


def hostile(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"env": config["env"] | {"import": "leaves_a_mark:Env", "id": None}}


def test_a_result_comes_back_as_it_was(result: Result, tmp_path: Path):
    restored = quatrain.load(result.save(tmp_path / "run"))
    np.testing.assert_equal(arrays_of(restored), arrays_of(result))
    assert (restored.config, restored.scores) == (result.config, result.scores)
    assert quatrain.evaluate(restored) == result.scores
    assert restored.plots().keys() == result.plots().keys()


def arrays_of(result: Result) -> dict[str, np.ndarray]:
    return load_modules(result.model).train.to_arrays(result.state)


def test_what_a_loaded_folder_names_is_not_imported(result: Result, tmp_path: Path, mark: Path):
    stored = folders.load(result.save(tmp_path / "run"))
    contents = stored.contents | {"config.json": hostile(stored.contents["config.json"])}
    del contents["scores.json"]
    folders.save(tmp_path / "run", contents, stored.info)
    loaded = quatrain.load(tmp_path / "run")
    request = loaded.example_request()
    np.testing.assert_equal(request, result.example_request())
    np.testing.assert_equal(loaded.predict(request), result.predict(request))
    assert result.model in repr(loaded) + loaded._repr_html_()
    assert not mark.exists()
    with pytest.raises(DataError, match="cannot be made"):
        quatrain.evaluate(loaded)
    assert mark.exists()


def test_a_served_model_needs_no_environment(result: Result, tmp_path: Path, mark: Path):
    config = hostile(result.config.model_dump(mode="json"))
    stored = {"model": result.model, "config": config}
    exported = load_modules(result.model).serve.export(result.config, result.state, result.dataset)
    (tmp_path / "config.json").write_text(json.dumps(stored))
    weights = formats.encode("weights.safetensors", exported)[0]
    (tmp_path / "weights.safetensors").write_bytes(weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow's own
        from pipeline.tracking.pyfunc_model import ServedModel
    served = ServedModel()
    artifacts = {"config": "config.json", "weights": "weights.safetensors"}
    places = {name: str(tmp_path / file) for name, file in artifacts.items()}
    served.load_context(SimpleNamespace(artifacts=places))
    request = result.example_request()
    np.testing.assert_equal(served.predict(None, request), result.predict(request))
    assert not mark.exists()


# Played.


def frames_of(result: Result) -> int:
    frames: int = getattr(result.config.network, "frames", 1)
    return frames


def test_an_observation_or_a_batch_of_them_gets_actions_of_the_environment(result: Result):
    ((observation, action),) = result.spaces.values()
    batch = np.stack([observation.sample() for _ in range(5)])
    if frames_of(result) > 1:
        with pytest.raises(DataError, match=r"sees the last \d observations, and not one alone"):
            result.predict(batch)
        request = {name: each[:1].repeat(200, 0) for name, each in result.example_request().items()}
        assert set(result.predict(request, deterministic=False)["action"]) == {0, 1}
    elif result.model == "allo":
        answers = result.predict({"observations": batch})
        np.testing.assert_equal(result.predict(batch), answers)
    else:
        actions = result.predict(batch)
        assert all(map(action.contains, actions))
        np.testing.assert_array_equal(result.predict(batch[0]), actions[0])
        drawn = result.predict(np.repeat(batch[:1], 200, 0), deterministic=False)
        assert all(map(action.contains, drawn))
        assert len(np.unique(drawn, axis=0)) > 1
    with pytest.raises(ValueError, match="observations"):
        result.predict({"observation": batch})
    assert pickle.loads(pickle.dumps(result)).scores == result.scores


def test_what_is_no_observation_is_refused_with_what_to_give(result: Result):
    obs = next(iter(result.spaces.values())).observation.sample()
    refused: dict[str, Callable[[], Any]] = {
        "the observation is None; give what env.reset()[0]": lambda: result.predict(None),
        "env.reset() returns them; give the first of the two": lambda: result.predict((obs, {})),
        "the batch holds no observations; give one at least": lambda: result.predict(obs[None][:0]),
        "info has 1 entries; give 2, one of each": lambda: result.predict([obs, obs], info=[{}]),
    }
    for line, call in refused.items():
        with pytest.raises(DataError, match=re.escape(line)):
            call()


def test_an_agent_that_is_unknown_is_named_beside_those_that_are_known():
    config = SimpleNamespace(env=SimpleNamespace(kind="pettingzoo"))
    rows = dict.fromkeys(("left", "right"), SimpleNamespace(spaces=SimpleNamespace(observation=0)))
    several: Any = SimpleNamespace(config=config, _rows=rows)
    for obs, names in (({"middle": 0}, "['middle']"), ([0], "list"), ({}, "[]")):
        line = f"observations are of {names}; give name -> one, of ['left', 'right']"
        with pytest.raises(DataError, match=re.escape(line)):
            own_episodes.act(several, obs, None, dict)


class Parts(Doors):
    """Shows its mask as a part of the observation, before the other."""

    observation_space = Dict({"action_mask": MultiBinary(5), "side": Doors.observation_space})

    def _observed(self) -> Any:
        side, info = super()._observed()
        return {"side": side} | info, {}


@pytest.mark.parametrize(
    ("learner", "kind"), [(of_actor_critic, Doors), (of_actor_critic, Parts), (of_iqn, Doors)]
)
def test_action_masks_are_read_as_in_the_training(learner: Any, kind: type[Doors]):
    model = learner.__name__.split(".")[-2]
    section = learner.section("Signs" if model == "actor_critic" else "OneStep")
    if model == "iqn":
        section["network"] = section["network"] | {"frames": 1}
    section["env"] |= {"import": f"{kind.__module__}:{kind.__name__}", "max_episode_steps": 4}
    config = getattr(params_with({model: section}), model)
    result = quatrain.fit(model, config=config, threads=1, progress=False)
    env = kind()
    for seed in range(5):
        obs, info = env.reset(seed=seed)
        request = {"observations": np.float32([[env.side, *env.open]])}
        if model == "iqn":
            request = {"observations": request["observations"][None], "agents": np.array([0])}
        expected = result.predict(request)["action"][0] + 1
        assert result.predict(obs, info=info) == expected
        drawn = {result.predict(obs, False, info) for _ in range(20)}
        assert drawn <= {1 + int(door) for door in np.flatnonzero(env.open)}


def test_fresh_episodes_have_an_interval_and_one_that_is_not_rendered_no_film(result: Result):
    if result.model == "allo":
        with pytest.raises(quatrain.ConfigError, match="allo does not act in an environment of a"):
            result.evaluate(3)
        return
    played = result.evaluate(episodes=12)
    assert played.returns.shape == played.lengths.shape == (12,)
    assert " score=" in repr(result)
    assert " return_mean=" in repr(result)
    assert played.low <= played.mean == played.returns.mean() <= played.high
    assert result.evaluate(12).mean == played.mean
    assert (result.evaluate(12, seed=3).mean != played.mean) == (result.model == "actor_critic")
    with pytest.raises(DataError, match="renders no pictures"):
        result.film()
    assert "film" not in result.films()


# Scored elsewhere.


def test_other_data_do_not_change_the_scale_of_observations(result: Result):
    """The scores are those of the same held-out data, whatever the training data are."""
    dataset = result.dataset
    if result.model == "allo":
        table = dataset.table._replace(mean=dataset.table.mean + 3, std=dataset.table.std * 9)
        other = dataset._replace(table=table)
    elif result.model == "iqn":
        train = dataset.train._replace(frames=dataset.train.frames * 9 + 3)
        other = dataset._replace(train=train)
    else:
        train = dataset.train._replace(obs_mean=dataset.train.obs_mean + 3)
        other = dataset._replace(train=train)
    scores = quatrain.evaluate(result, dataset=other)
    trained = {name: score for name, score in scores.items() if "untrained" not in name}
    assert trained.items() <= result.scores.items()


def test_a_seed_draws_other_held_out_data_or_is_refused(result: Result):
    if result.model == "allo":
        with pytest.raises(DataError, match="numbers its states, by the seed"):
            quatrain.evaluate(result, seed=7)
    else:
        again = quatrain.evaluate(result, seed=7)
        assert again["random_return"] != result.scores["random_return"]


def test_another_limit_of_steps_is_taken_and_other_spaces_are_refused(result: Result):
    shorter = quatrain.evaluate(result, env={"max_episode_steps": 3})
    assert shorter.keys() == result.scores.keys()
    steps = {"actor_critic": "length_mean", "iqn": "episode_steps"}.get(result.model)
    if steps is not None:
        assert shorter[steps] == 3 < result.scores[steps]
    elsewhere = {"import": "tests.models.iqn.user_envs:OneStep"}
    form = r"another form of environment: .*observation size \d.*, where OneStep has "
    with pytest.raises(DataError, match=form):
        quatrain.evaluate(result, env=elsewhere)


# Defined again.

MODULE = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

class Mine(gymnasium.Env):
    observation_space = Box(0, 1, ({size},), np.float32)
    action_space = Discrete({size})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.random({size}, np.float32), {{}}

    def step(self, action):
        return self.np_random.random({size}, np.float32), 0.0, False, False, {{}}
"""


@pytest.mark.parametrize("model", LEARNERS)
def test_an_environment_that_is_defined_again_is_learned_as_it_is(
    model: str, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    config, modules = config_of(model), load_modules(model)
    env = config.env.model_copy(update={"id": None, "import_": "defined_again:Mine"})
    config = config.model_copy(update={"env": env})

    def collected(size: int) -> Any:
        (tmp_path / "defined_again.py").write_text(MODULE.format(size=size))
        sys.modules.pop("defined_again", None)
        return modules.collect.collect(config, 0)

    for size in (4, 3):
        dataset = collected(size)
        assert dataset.interface.observation_size == dataset.interface.action_counts == size
        modules.train.init_state(config, dataset, 0)
        assert modules.serve.request(config, dataset)["observations"].shape[-1] == size
    collected(5)
    with pytest.raises(DatasetMismatch, match="its observation_size is 5, and was 3; collect"):
        next(modules.train.train(config, dataset, 0))
