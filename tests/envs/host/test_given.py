"""What Python has becomes keys that make the same environment again, or a line."""

import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import (
    FrameStackObservation,
    RecordEpisodeStatistics,
    TimeLimit,
    TransformReward,
)
from pettingzoo import ParallelEnv
from pettingzoo.utils.conversions import parallel_to_aec
from pydantic import ValidationError

from quatrain.envs.host.config import HostEnv, frozen, thawed
from quatrain.envs.host.envs import HostEnvs, play
from quatrain.envs.host.given import keys_of
from quatrain.errors import ConfigError, DataError
from tests.envs.host.test_envs import Counter, Pair

REST = {"kwargs": {}, "wrappers": [], "max_episode_steps": 7, "vectorization": "sync"}
HERE = "tests.envs.host.test_envs"


def config_of(env: Any, **others: Any) -> HostEnv:
    keys = {"id": None, "import": None} | REST | others | keys_of(env)
    return HostEnv.model_validate(keys)


class Plus(gymnasium.RewardWrapper):
    """Adds to rewards, and records no arguments."""

    def __init__(self, env: Any, number: float = 1) -> None:
        super().__init__(env)
        self.number = number

    def reward(self, reward: Any) -> float:
        return float(reward) + self.number


NAMED: dict[str, tuple[Any, dict[str, Any]]] = {
    "an id": ("CartPole-v1", {"id": "CartPole-v1"}),
    "an id with its module": ("gymnasium:A-v0", {"id": "A-v0", "import": "gymnasium"}),
    "a dictionary of an id": (
        {"id": "A-v0", "kwargs": {"a": 1}},
        {"id": "A-v0", "kwargs": {"a": 1}},
    ),
    "a class": (Counter, {"import": f"{HERE}:Counter", "id": None}),
    "parallel agents": (Pair, {"import": f"{HERE}:Pair", "kind": "pettingzoo"}),
    "a class with keys": (
        {"import": Counter, "wrappers": [(Plus, {"number": 3}), "a:b"]},
        {"wrappers": [{"import": f"{__name__}:Plus", "kwargs": {"number": 3}}, "a:b"]},
    ),
    "wrappers without a list": (
        {"import": Counter, "wrappers": Plus},
        {"wrappers": [{"import": f"{__name__}:Plus", "kwargs": {}}]},
    ),
    "a wrapper's name without a list": ({"id": "A-v0", "wrappers": "a:b"}, {"wrappers": ["a:b"]}),
    "an environment with keys": (
        {"import": gymnasium.make("CartPole-v1"), "max_episode_steps": 9},
        {"id": "CartPole-v1", "import": None, "max_episode_steps": 9},
    ),
    "keys of no environment": ({"max_episode_steps": 4}, {"max_episode_steps": 4}),
}


@pytest.mark.parametrize("name", NAMED)
def test_what_names_an_environment_becomes_its_keys(name: str):
    env, keys = NAMED[name]
    actual = keys_of(env)
    assert keys.items() <= actual.items()
    assert actual.get("kind", "none") == keys.get(
        "kind", "gymnasium" if len(actual) > 1 else "none"
    )


def test_an_environment_of_gymnasium_make_is_made_again_as_it_is_wrapped():
    inner = gymnasium.make("CartPole-v1", render_mode="rgb_array", max_episode_steps=90)
    env = TimeLimit(TransformReward(FrameStackObservation(inner, 2), lambda reward: -reward), 50)
    keys = keys_of(env)
    assert (keys["id"], keys["max_episode_steps"], keys["kwargs"]) == ("CartPole-v1", 50, {})
    with closing(HostEnvs(config_of(env), 1, 0)) as envs:
        assert envs.interface.observation_size == 8
        assert envs.step(np.zeros((1, 1), int)).rewards[0, 0] == -1


@pytest.mark.parametrize(
    "maker", [lambda: Counter(limit=3), partial(Counter, limit=3)], ids=["lambda", "partial"]
)
def test_what_no_import_leads_to_is_made_in_this_process_alone(maker: Callable[[], Any]):
    config = config_of(maker)
    assert config_of(maker) == config != config_of(lambda: Counter(limit=4))
    with closing(HostEnvs(config, 1, 0)) as envs:
        assert play(envs, lambda _: np.zeros((1, 1), int)).lengths == 3
    with pytest.raises(ValidationError, match="exists in this process alone, and vectorization"):
        config_of({"import": maker, "vectorization": "async"})
    code = f"from quatrain.envs.host.given import {config.name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "was defined in another process" in done.stderr


REFUSED: dict[str, Callable[[], Any]] = {
    "env is an instance of Counter, which cannot be made again; give what makes it": Counter,
    "env is an instance of Pair, which cannot be made again": Pair,
    "env is wrapped in Plus, which does not record its arguments; give env={": (
        lambda: Plus(gymnasium.make("CartPole-v1"))
    ),
    "a vector of environments; give a single one": lambda: gymnasium.make_vec("CartPole-v1", 2),
    "env is an instance of Counter, which cannot be made again; give what": (
        lambda: {"import": Counter()}
    ),
    'env is of type int; give an id such as "CartPole-v1", a class': lambda: 5,
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_made_again_is_one_line(line: str):
    with pytest.raises(ConfigError, match=re.escape(line)):
        keys_of(REFUSED[line]())


@pytest.mark.parametrize(
    ("maker", "reason"),
    [
        (lambda: 1 / 0, r"ZeroDivisionError: .* \(test_given\.py, line \d+\); mend it$"),
        (lambda: None, r"factory\w* returned None; return an environment$"),
        (lambda size: size, r"TypeError: .*; mend its arguments, \"kwargs\": {.*takes \(size\)"),
        (lambda: Counter, r"factory\w* returned the class Counter; return Counter\(\)"),
    ],
)
def test_a_callable_that_makes_none_is_one_line(maker: Callable[[], Any], reason: str):
    with pytest.raises(DataError, match=rf"env factory\w* cannot be made: {reason}"):
        keys_of(maker)


class Both(Pair, ParallelEnv):
    """Is of the class that PettingZoo's conversions ask for."""

    metadata: dict[str, Any] = {}  # noqa: RUF012
    render_mode = None


def test_agents_that_act_in_turns_become_parallel_where_they_may():
    def in_turns() -> Any:
        env = parallel_to_aec(Both())
        env.metadata["is_parallelizable"] = True
        return env

    with closing(HostEnvs(config_of(in_turns), 1, 0)) as envs:
        assert len(envs.interface.agents) > 1


# Wrappers and their arguments.


def test_wrappers_are_applied_in_order_and_their_limit_is_taken():
    wrappers = [(TimeLimit, {"max_episode_steps": 3}), Plus, RecordEpisodeStatistics]
    config = config_of({"import": Counter, "wrappers": wrappers}, max_episode_steps=None)
    with closing(HostEnvs(config, 1, 0)) as envs:
        assert envs.interface.max_episode_steps == 3
        assert envs.step(np.zeros((1, 1), int)).rewards == 2
    wrong = config_of({"import": Counter, "wrappers": [(Plus, {"numbr": 1})]})
    with pytest.raises(
        DataError, match=r"env Counter cannot be wrapped in Plus: TypeError: .*numbr"
    ):
        HostEnvs(wrong, 1, 0)


def test_arguments_may_be_nested_and_come_back_from_hashable_pairs():
    kwargs = {"sizes": [84, 84], "inner": {"a": [1.5, {"b": None}], "c": "x"}, "none": {}}
    config = config_of({"import": Counter, "kwargs": kwargs, "kind": "gymnasium"})
    assert hash(config) == hash(HostEnv.model_validate(config.model_dump(mode="json")))
    assert thawed(config.kwargs) == {
        "sizes": (84, 84),
        "inner": {"a": (1.5, {"b": None}), "c": "x"},
        "none": {},
    }
    assert config.model_dump(mode="json")["kwargs"] == kwargs
    with pytest.raises(ValueError, match="b is nan; give a finite number, a text, true, null, or"):
        frozen({"a": [{"b": float("nan")}]})
