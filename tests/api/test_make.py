"""An environment of the package is made by its id; an unknown id is refused with those known."""

import re
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

import quatrain


class Probe(gymnasium.Env):
    """Returns a constant."""

    observation_space = gymnasium.spaces.Box(0, 1, (4,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, size: float = 0.0, **_: Any) -> None:
        self.size = size

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed, options=options)
        return np.full(4, self.size, np.float32), {}


@pytest.fixture
def registered() -> Iterator[None]:
    gymnasium.register("quatrain/Probe-v0", entry_point=Probe, max_episode_steps=9)
    yield
    del gymnasium.registry["quatrain/Probe-v0"]


@pytest.mark.usefixtures("registered")
def test_an_environment_is_made_by_its_id():
    for name in ("quatrain/Probe-v0", "Probe-v0"):
        env = quatrain.make(name, size=0.5)
        assert env.spec.max_episode_steps == 9
        assert env.reset(seed=0)[0].tolist() == [0.5] * 4
        env.close()
    envs = quatrain.make("Probe-v0", num_envs=3)
    assert envs.reset(seed=0)[0].shape == (3, 4)
    envs.close()


@pytest.mark.usefixtures("registered")
def test_an_unknown_id_is_refused_with_those_known():
    with pytest.raises(quatrain.ConfigError) as error:
        quatrain.make("Prob-v0")
    assert "unknown environment 'Prob-v0'; did you mean 'quatrain/Probe-v0'?" in str(error.value)


@pytest.mark.parametrize(
    ("id", "settings", "line"),
    [
        ("Grid-v0", {"layout": "spirral"}, "unknown layout 'spirral'; did you mean 'spiral'?"),
        ("Grid-v0", {"rooms": "x"}, "quatrain/Grid-v0: rooms = 'x': Input should be"),
        ("Colony-v0", {"nix": 1}, "quatrain/Colony-v0: nix: unknown key; remove"),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused(id: str, settings: dict[str, Any], line: str):
    for num_envs in (None, 2):
        with pytest.raises(ValueError, match=re.escape(line)):
            quatrain.make(id, num_envs=num_envs, **settings)
