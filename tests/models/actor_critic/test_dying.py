"""Whether ending early pays, by rewards."""

import pytest
import torch

from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.plates import two_ridges_plate
from quatrain.envs.colony.policies import constant_policy, feedback_policy, random_policy
from quatrain.envs.colony.world import returns, start
from tests.conftest import params_with, shapes_unchecked

COLONIES = 512


@pytest.mark.parametrize(("reward", "pays"), [("goal_control", True), ("goal_control_safe", False)])
@pytest.mark.parametrize("policy", ["grow", "grow with long throws", "shrink", "random"])
def test_ending_early_pays_more_than_staying_only_without_a_forfeit(
    reward: str, pays: bool, policy: str
):
    """Compares each colony with itself. Shrinking never pays: it drifts back or ends late."""
    rules = params_with({"actor_critic": {"env": {"reward": {"preset": reward}}}}).actor_critic.env
    world, draws = make_world(rules, two_ridges_plate(rules.width)), torch.Generator()
    colonies = start(world, COLONIES, draws.manual_seed(0))
    actions = {
        "grow": torch.tensor([0.0, 0.5, 4.0, 0.05, 0.0]),
        "grow with long throws": torch.tensor([0.0, 15.0, 0.5, 0.5, 0.0]),
        "shrink": torch.tensor([0.7, 0.5, 4.0, 0.05, 0.0]),
    }
    to_end = random_policy(rules, draws)
    if policy in actions:
        to_end = constant_policy(actions[policy].expand(COLONIES, 5))
    shortest = torch.full((COLONIES,), rules.bounds[1].low)
    with shapes_unchecked():
        ended = returns(world, colonies, to_end)
        stayed = returns(world, colonies, feedback_policy(rules, shortest))
    share = float((ended > stayed).float().mean())
    assert share > 0.3 if pays and policy != "shrink" else share == 0
