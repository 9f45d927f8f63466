"""Actions outside their bounds are refused with row, name and value."""

import re

import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import data_equivalence

from quatrain.envs.adapters.colony import ColonySimulation
from quatrain.envs.adapters.simulation import SimulationVectorEnv
from quatrain.envs.colony.world import check_actions, start, step
from tests.colonies import all_kinds, rules, world
from tests.torch_numbers import seeded

STEADY = np.array([[0.5, 9.0, 0.5, 0.5, 0.0]] * 4, np.float32)


def put(row: int, column: int, value: float) -> np.ndarray:
    action = STEADY.copy()
    action[row, column] = value
    return action


def test_an_invalid_action_is_named():
    for action, message in (
        (STEADY[:, :4], "action has shape [4,4], expected [4,5]"),
        (STEADY[0], "action has shape [5], expected [5,5]"),
        (put(3, 1, 17.2), "action[3].gamma = 17.2 outside [0.5, 15.0]"),
        (put(0, 0, -0.01), "action[0].delete_ratio = -0.01 outside [0.0, 0.7]"),
        (put(2, 4, 0.6), "action[2].theta = 0.6 outside [-0.5235988, 0.5235988]"),
        (put(1, 3, np.inf), "action[1].noise = inf outside [0.05, 0.5]"),
        (put(3, 2, np.nan), "action contains nan in row 3"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
            check_actions(rules(), torch.tensor(action))


REFUSED = pytest.raises(ValueError, match=r"action\[1\]\.gamma = 17\.2 outside \[0\.5, 15\.0\]")


def test_an_invalid_action_changes_no_environment():
    simulation = ColonySimulation(rules(), all_kinds(), 4)
    envs = SimulationVectorEnv(simulation)
    before, _ = envs.reset(seed=0)
    with REFUSED:
        envs.step(put(1, 1, 17.2))
    assert data_equivalence(simulation.observations, before, exact=True)
    before["node"][:] = 0  # what was returned is a copy
    assert simulation.observations["node"].any()


def test_check_actions_enables_the_check_of_actions():
    generator, action = seeded(), torch.tensor(put(1, 1, 17.2))
    colonies = start(world(), 4, generator)
    step(world(check_actions=False), colonies, action, generator)
    with REFUSED:
        step(world(check_actions=True), colonies, action, generator)
    ends = np.array(rules().bounds, np.float32).T
    check_actions(rules(), torch.tensor(ends).repeat(16, 1))  # any number of rows
