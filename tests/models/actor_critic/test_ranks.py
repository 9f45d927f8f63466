"""Two processes that share the colonies learn what one would."""

from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.colony.dynamics import make_world
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.ppo import agent as agents
from quatrain.models.actor_critic.ppo import playing
from quatrain.models.actor_critic.ppo.ranks import helped
from quatrain.models.actor_critic.ppo.team import ALONE, Team
from quatrain.replay.rollouts import buffer
from quatrain.replay.rollouts.buffer import Rollout, Transitions
from tests.conftest import small

ONE, TWO = small("actor_critic"), small("actor_critic", train={"world_size": 2})


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return collect(ONE, 0)


def made(dataset: Dataset, team: Team) -> agents.Agent:
    world = make_world(ONE.env.rules, dataset.train.plates)
    config = ONE if team.size == 1 else TWO
    return agents.restored(
        config, world, train.init_state(config, world, dataset, 3).seeds[0], team
    )


def half(rollout: Rollout, team: Team) -> Rollout:
    """The lanes of a rank."""
    own = slice(team.rank * 12, (team.rank + 1) * 12) if team.size > 1 else slice(None)
    return Rollout(*(column[:, own] for column in rollout))


def gradients(dataset: Dataset, rollout: Rollout, team: Team) -> dict[str, torch.Tensor]:
    """Of the whole rollout as one minibatch."""
    agent = made(dataset, team)
    transitions: Transitions = train.judged(agent, half(rollout, team))
    every = torch.arange(len(transitions.n))
    loss, _ = train.objective(agent, buffer.minibatch(transitions, every), 0.01)
    loss.backward()
    agent.team.average_gradients(agent.network.parameters())
    return {
        name: param.grad
        for name, param in agent.network.named_parameters()
        if param.grad is not None
    }


def other(team: Team, dataset: Dataset, rollout: Rollout) -> None:
    gradients(dataset, rollout, team)


def test_two_ranks_have_the_gradient_of_one(dataset: Dataset):
    agent = made(dataset, ALONE)
    playing.play(agent.actor, agent.player, agent.rollout)
    wanted = gradients(dataset, agent.rollout, ALONE)
    with helped(2, other, dataset, agent.rollout) as team:
        found = gradients(dataset, agent.rollout, team)
    assert found.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_two_ranks_learn_and_resume_bit_for_bit(dataset: Dataset):
    whole = list(train.train(TWO, dataset, 3))
    assert whole[-1].step == ONE.train.steps
    assert len(whole[0].state.ranks[0]) == 2
    first, second = whole[-1].state.ranks[0]
    assert not torch.equal(first.colonies.pos, second.colonies.pos)
    saved = train.from_arrays(TWO, dataset, train.to_arrays(whole[1].state))
    rest = list(train.train(TWO, dataset, 3, saved))
    packed: list[dict[str, Any]] = [train.to_arrays(run[-1].state) for run in (whole, rest)]
    for name, array in packed[0].items():
        np.testing.assert_array_equal(packed[1][name], array, err_msg=name)


def test_a_learner_of_another_number_of_ranks_is_refused(dataset: Dataset):
    arrays = train.to_arrays(next(train.train(ONE, dataset, 0)).state)
    with pytest.raises(
        ValueError, match=r"not a learner of this config: differing arrays .*ranks/0/1"
    ):
        train.from_arrays(TWO, dataset, arrays)


def broken(team: Team) -> None:
    raise RuntimeError(f"rank {team.rank} is out of order")


@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_fails_ends_the_training(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RuntimeError, match="rank 1 ended with 1"), helped(2, broken) as team:
        team.averaged(torch.zeros(1))
    assert "rank 1 is out of order" in capfd.readouterr().err
