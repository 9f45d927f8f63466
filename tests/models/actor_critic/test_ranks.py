"""Two processes that share the colonies learn what one would."""

from typing import Any

import numpy as np
import pytest
import torch

from quatrain.envs.colony.dynamics import make_world
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.ppo import iteration, rollout
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.launch import launch_ranks
from quatrain.models.actor_critic.ppo.process_group import SINGLE_PROCESS, ProcessGroup
from quatrain.replay.rollouts import buffer
from quatrain.replay.rollouts.buffer import Rollout, Transitions
from tests.conftest import small

ONE_RANK, TWO_RANKS = small("actor_critic"), small("actor_critic", train={"world_size": 2})


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return collect(ONE_RANK, 0)


def make_trainer(dataset: Dataset, group: ProcessGroup) -> trainers.Trainer:
    world = make_world(ONE_RANK.env.rules, dataset.train.plates)
    config = ONE_RANK if group.size == 1 else TWO_RANKS
    return trainers.from_state(config, world, train.init_state(config, dataset, 3).seeds[0], group)


def half(collected: Rollout, group: ProcessGroup) -> Rollout:
    """Returns the environments of a rank."""
    envs = slice(group.rank * 12, (group.rank + 1) * 12) if group.size > 1 else slice(None)
    return Rollout(*(column[:, envs] for column in collected))


def gradients(dataset: Dataset, collected: Rollout, group: ProcessGroup) -> dict[str, torch.Tensor]:
    """Of the whole rollout as one minibatch."""
    trainer = make_trainer(dataset, group)
    trainer.rollout = half(collected, group)
    transitions: Transitions = iteration.compute_advantages(trainer)
    every = torch.arange(len(transitions.n))
    loss, _ = iteration.objective(trainer, buffer.minibatch(transitions, every), 0.01)
    loss.backward()
    trainer.process_group.average_gradients(trainer.network.parameters())
    return {
        name: param.grad
        for name, param in trainer.network.named_parameters()
        if param.grad is not None
    }


def other(group: ProcessGroup, dataset: Dataset, collected: Rollout) -> None:
    gradients(dataset, collected, group)


def test_two_ranks_have_the_gradient_of_one(dataset: Dataset):
    trainer = make_trainer(dataset, SINGLE_PROCESS)
    rollout.collect_rollout(trainer.actor, trainer.rollout_state, trainer.rollout)
    expected = gradients(dataset, trainer.rollout, SINGLE_PROCESS)
    with launch_ranks(2, other, dataset, trainer.rollout) as group:
        result = gradients(dataset, trainer.rollout, group)
    assert result.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(result[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


def test_two_ranks_learn_and_resume_bit_for_bit(dataset: Dataset):
    whole = list(train.train(TWO_RANKS, dataset, 3))
    assert whole[-1].step == ONE_RANK.train.steps
    assert len(whole[0].state.ranks[0]) == 2
    first, second = whole[-1].state.ranks[0]
    assert not torch.equal(first.colonies.pos, second.colonies.pos)
    saved = train.from_arrays(TWO_RANKS, dataset, train.to_arrays(whole[1].state))
    rest = list(train.train(TWO_RANKS, dataset, 3, saved))
    packed: list[dict[str, Any]] = [train.to_arrays(run[-1].state) for run in (whole, rest)]
    for name, array in packed[0].items():
        np.testing.assert_array_equal(packed[1][name], array, err_msg=name)


def test_a_learner_of_another_number_of_ranks_is_refused(dataset: Dataset):
    arrays = train.to_arrays(next(train.train(ONE_RANK, dataset, 0)).state)
    with pytest.raises(
        ValueError, match=r"not a learner of this config: differing arrays .*ranks/0/1"
    ):
        train.from_arrays(TWO_RANKS, dataset, arrays)


def broken(group: ProcessGroup) -> None:
    raise RuntimeError(f"rank {group.rank} is out of order")


@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_fails_ends_the_training(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RuntimeError, match="rank 1 ended with 1"), launch_ranks(2, broken) as group:
        group.all_reduce_mean(torch.zeros(1))
    assert "rank 1 is out of order" in capfd.readouterr().err
