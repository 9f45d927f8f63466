"""Actions outside their bounds are refused with row, name and value."""

import re

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence

from quatrain.envs.adapters.colony import ColonyVectorEnv
from quatrain.envs.colony.actions import check_actions
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.world import StepResult, start, step
from tests.colonies import all_kinds, rules

STEADY = [0.5, 9.0, 0.5, 0.5, 0.0]
FAULTS = {
    "action has shape [4,4], expected [4,5]": lambda action: action[:, :4],
    "action has shape [3,5], expected [4,5]": lambda action: action[:3],
    "action has shape [5], expected [4,5]": lambda action: action[0],
    "action[3].gamma = 17.2 outside [0.5, 15.0]": lambda action: put(action, 3, 1, 17.2),
    "action[0].delete_ratio = -0.01 outside [0.0, 0.7]": lambda action: put(action, 0, 0, -0.01),
    "action[2].theta = 0.6 outside [-0.5235988, 0.5235988]": lambda action: put(action, 2, 4, 0.6),
    "action[1].noise = inf outside [0.05, 0.5]": lambda action: put(action, 1, 3, np.inf),
    "action contains nan in row 3": lambda action: put(action, 3, 2, np.nan),
}


def put(action: np.ndarray, row: int, column: int, value: float) -> np.ndarray:
    action = action.copy()
    action[row, column] = value
    return action


@pytest.mark.parametrize("message", FAULTS)
def test_invalid_actions_raise_and_change_nothing(message: str):
    envs = ColonyVectorEnv(rules(), all_kinds(), 4)
    before, _ = envs.reset(seed=0)
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        envs.step(FAULTS[message](np.array([STEADY] * 4, np.float32)))
    assert data_equivalence(envs.observation(), before, exact=True)


def test_check_actions_enables_the_check_of_actions():
    generator, action = torch.Generator().manual_seed(0), torch.tensor([STEADY] * 3)
    action[1, 1] = 17.2
    for checked in (True, False):
        world = make_world(rules(check_actions=checked), all_kinds())
        colonies = start(world, 3, generator)
        if checked:
            with pytest.raises(
                ValueError, match=r"action\[1\]\.gamma = 17\.2 outside \[0\.5, 15\.0\]"
            ):
                step(world, colonies, action, generator)
        else:
            assert isinstance(step(world, colonies, action, generator), StepResult)


def test_without_a_count_any_number_of_actions_is_allowed():
    for rows in (1, 64):
        check_actions(rules(), torch.tensor([STEADY] * rows))
    with pytest.raises(ValueError, match=r"action has shape \[64,4\], expected \[64,5\]"):
        check_actions(rules(), torch.zeros(64, 4))
