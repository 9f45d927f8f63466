"""Whether ending early pays: by rewards, and to a policy that learns."""

from itertools import islice

import pytest
import torch

from pipeline.storage.params_file import read_params
from quatrain.envs.colony.dynamics import make_world
from quatrain.envs.colony.plates import two_ridges_plate
from quatrain.envs.colony.policies import constant_policy, feedback_policy, random_policy
from quatrain.envs.colony.world import returns, start
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from tests.conftest import ROOT, shapes_unchecked

COLONIES = 512
SOON = 8  # records
RIDGES = {"plates": "two_ridges", "n_train": 1, "n_held_out": 1, "n_outside": 0}
FEW = {"held_out_colonies": 32, "constant_search": 200}


def config_of(reward: str, **changes: object) -> ActorCriticConfig:
    changed = {"env": {"reward": {"preset": reward}}, "collect": RIDGES | FEW, **changes}
    return read_params(ROOT, None, {"actor_critic": changed}).actor_critic


@pytest.mark.parametrize(("reward", "pays"), [("goal_control", True), ("goal_control_safe", False)])
@pytest.mark.parametrize("policy", ["grow", "grow with long throws", "shrink", "random"])
def test_ending_early_pays_more_than_staying_only_without_a_forfeit(
    reward: str, pays: bool, policy: str
):
    """Compares each colony with itself. Shrinking never pays: it drifts back or ends late."""
    rules = config_of(reward).env
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


@pytest.mark.full
def test_a_policy_soon_learns_not_to_end_early_where_that_does_not_pay():
    """On two ridges, after a fifth of the default's transitions; random actions last 5 steps."""
    config = config_of("goal_control_safe", train={"evaluate_every": 0})
    with shapes_unchecked():
        first, *_, last = islice(train.train(config, collect(config, 0), 0), SOON)
    assert last.step * config.train.batch <= config.train.transitions / 4
    assert first.metrics["length"][0] < 8
    assert last.metrics["length"][-1] > 40
