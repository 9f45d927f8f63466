"""Two processes that share the colonies learn what one would."""

import numpy as np
import pytest
import torch
from torch import distributed

from quatrain.envs.colony.dynamics import make_world
from quatrain.errors import RankLost
from quatrain.frameworks.torch.ranks import Placement, place_rank
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.ppo import iteration, launch, rollout
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.models.actor_critic.ppo.launch import launch_ranks
from quatrain.models.actor_critic.ppo.process_group import SINGLE_PROCESS, ProcessGroup
from quatrain.replay.rollouts import buffer
from quatrain.replay.rollouts.buffer import Rollout
from tests.conftest import shapes_unchecked, small

BRIEF = {"transitions": 24 * 8 * 4}
ONE_RANK = small("actor_critic", train=BRIEF)
TWO_RANKS = small("actor_critic", train=BRIEF | {"world_size": 2})


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    with shapes_unchecked():
        return collect(ONE_RANK, 0)


def make_trainer(dataset: Dataset, group: ProcessGroup) -> trainers.Trainer:
    world = make_world(ONE_RANK.env.rules, dataset.train.plates)
    config = ONE_RANK if group.size == 1 else TWO_RANKS
    return trainers.from_state(config, world, train.init_state(config, dataset, 3).seeds[0], group)


def gradients(group: ProcessGroup, dataset: Dataset, whole: Rollout) -> dict[str, torch.Tensor]:
    """Of a rollout as one minibatch, of which each rank has its share of the colonies."""
    trainer = make_trainer(dataset, group)
    share = 24 // group.size
    envs = slice(group.rank * share, (group.rank + 1) * share)
    trainer.rollout = Rollout(*(column[:, envs] for column in whole))
    transitions = iteration.compute_advantages(trainer)
    every = torch.arange(len(transitions.n))
    loss, _ = iteration.objective(trainer, buffer.minibatch(transitions, every), 0.01)
    loss.backward()
    trainer.process_group.average_gradients(trainer.network.parameters())
    named = trainer.network.named_parameters()
    return {name: param.grad for name, param in named if param.grad is not None}


def run_other_rank(group: ProcessGroup, dataset: Dataset, whole: Rollout) -> None:
    gradients(group, dataset, whole)


@pytest.mark.full
def test_two_ranks_have_the_gradient_of_one(dataset: Dataset):
    trainer = make_trainer(dataset, SINGLE_PROCESS)
    rollout.collect_rollout(trainer.actor, trainer.rollout_state, trainer.rollout)
    expected = gradients(SINGLE_PROCESS, dataset, trainer.rollout)
    with launch_ranks(2, run_other_rank, dataset, trainer.rollout) as group:
        result = gradients(group, dataset, trainer.rollout)
    assert result.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(result[name], gradient, atol=1e-5, rtol=1e-4, msg=name)


@pytest.mark.full
def test_two_ranks_learn_and_resume_bit_for_bit(dataset: Dataset, monkeypatch: pytest.MonkeyPatch):
    with shapes_unchecked():
        first, last = train.train(TWO_RANKS, dataset, 3)
        saved = train.from_arrays(TWO_RANKS, dataset, train.to_arrays(first.state))
        (rest,) = train.train(TWO_RANKS, dataset, 3, saved)
    assert last.step == ONE_RANK.train.steps
    first, other = last.state.ranks[0]
    assert not torch.equal(first.colonies.pos, other.colonies.pos)
    np.testing.assert_equal(train.to_arrays(rest.state), train.to_arrays(last.state))
    monkeypatch.setattr(launch, "launch_ranks", lambda *_: pytest.fail("nothing is left to do"))
    assert list(train.train(TWO_RANKS, dataset, 3, last.state)) == []


def test_a_learner_of_another_number_of_ranks_is_refused(dataset: Dataset):
    arrays = train.to_arrays(train.init_state(ONE_RANK, dataset, 0))
    why = r"not a learner of this config: differing arrays .*ranks/0/1"
    with pytest.raises(ValueError, match=why):
        train.from_arrays(TWO_RANKS, dataset, arrays)


def broken(group: ProcessGroup) -> None:
    raise RuntimeError(f"rank {group.rank} is out of order")


@pytest.mark.full
@pytest.mark.filterwarnings("ignore")
def test_a_rank_that_fails_ends_the_training(capfd: pytest.CaptureFixture[str]):
    with pytest.raises(RankLost, match="rank 1 ended with 1"), launch_ranks(2, broken) as group:
        group.all_reduce_mean(torch.zeros(1))
    assert "rank 1 is out of order" in capfd.readouterr().err


def test_a_process_that_is_a_rank_already_starts_no_others(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_rank", lambda: 1)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 3)
    with launch_ranks(3, broken) as group:
        assert group == ProcessGroup(rank=1, size=3)
    message = "^actor_critic.train.world_size is 2, but torch.distributed joins 3 processes$"
    with pytest.raises(ValueError, match=message), launch_ranks(2, broken):
        pass


@pytest.mark.parametrize(
    ("device", "local_rank", "local_size", "gpus", "expected"),
    [
        ("cpu", 1, 2, 0, Placement("gloo", None)),
        ("cpu", 1, 2, 8, Placement("gloo", None)),
        ("cuda", 0, 2, 2, Placement("cpu:gloo,cuda:nccl", 0)),
        ("cuda", 1, 2, 8, Placement("cpu:gloo,cuda:nccl", 1)),
        ("cuda", 1, 2, 1, Placement("gloo", None)),
    ],
)
def test_each_rank_has_a_gpu_of_its_own_if_there_are_enough(
    device: str, local_rank: int, local_size: int, gpus: int, expected: Placement
):
    assert place_rank(device, local_rank, local_size, gpus) == expected
