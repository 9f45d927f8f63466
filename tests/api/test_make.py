"""An environment of the package is made by its id; an unknown id is refused with those known."""

import re

import pytest

import quatrain


@pytest.mark.parametrize("name", ["quatrain/Grid-v0", "Grid-v0"])
def test_an_environment_is_made_by_its_id(name: str):
    env = quatrain.make(name, layout="spiral")
    assert env.spec.id == "quatrain/Grid-v0"
    assert env.reset(seed=0)[0].shape == (2,)
    assert quatrain.make(name, num_envs=3).reset(seed=0)[0].shape == (3, 2)


@pytest.mark.parametrize("num_envs", [None, 2])
def test_an_unknown_id_or_setting_is_refused_in_one_line(num_envs: int | None):
    message = "unknown environment 'Gird-v0'; did you mean 'quatrain/Grid-v0'?"
    with pytest.raises(quatrain.ConfigError, match=re.escape(message)):
        quatrain.make("Gird-v0", num_envs=num_envs)
    with pytest.raises(quatrain.ConfigError, match="quatrain/Colony-v0: nix: unknown key; remove"):
        quatrain.make("Colony-v0", num_envs=num_envs, nix=1)
