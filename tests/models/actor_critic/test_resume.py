"""The same numbers again: of a seed, of a run that was cut off, and of the plainest world after the
actions drawn.
"""

from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.reference import colony as plain
from quatrain.envs.colony.dynamics import Colonies, make_world
from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import Dataset, collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo import rollout
from quatrain.models.actor_critic.ppo import trainer as trainers
from quatrain.progress import Progress
from tests.conftest import small

VARIANTS: list[dict[str, Any]] = [
    {"network": {"layers": 2}},
    {
        "env": {"features": "full"},
        "network": {"policy": "squashed_gaussian", "value_heads": "components"},
    },
    {"train": {"target_kl": 1e-3, "value_clip": 0.1}, "seeds": 2},
]


def config_of(variant: dict[str, Any]) -> ActorCriticConfig:
    """With a yield after three iterations, and after three more."""
    return small(
        "actor_critic",
        **variant
        | {"train": {**variant.get("train", {}), "record_every": 3, "transitions": 24 * 8 * 6}},
    )


@pytest.fixture(
    scope="module",
    params=VARIANTS,
    ids=["layers", "full squashed components", "stopped by KL, two seeds"],
)
def case(request: pytest.FixtureRequest) -> tuple[ActorCriticConfig, Dataset, list[Progress]]:
    config = config_of(request.param)
    dataset = collect(config, 0)
    return config, dataset, list(train.train(config, dataset, 0))


def assert_same(item: Progress, other: Progress) -> None:
    assert item.step == other.step
    assert item.metrics.keys() == other.metrics.keys()
    for name, values in item.metrics.items():
        np.testing.assert_array_equal(other.metrics[name], values, err_msg=name)
    packed, others = train.to_arrays(item.state), train.to_arrays(other.state)
    assert packed.keys() == others.keys()
    for name, array in packed.items():
        np.testing.assert_array_equal(others[name], array, err_msg=name)


def test_the_same_seed_has_the_same_metrics(
    case: tuple[ActorCriticConfig, Dataset, list[Progress]],
):
    config, dataset, whole = case
    for item, other in zip(whole, train.train(config, dataset, 0), strict=True):
        assert_same(item, other)


def test_resumed_after_three_iterations_nothing_differs(
    case: tuple[ActorCriticConfig, Dataset, list[Progress]],
):
    config, dataset, whole = case
    assert [item.step for item in whole] == [3, 6]
    saved = train.from_arrays(config, dataset, train.to_arrays(whole[0].state))
    (rest,) = train.train(config, dataset, 0, saved)
    assert_same(whole[1], rest)


def test_a_finished_run_has_nothing_left_to_learn(
    case: tuple[ActorCriticConfig, Dataset, list[Progress]],
):
    config, dataset, whole = case
    assert list(train.train(config, dataset, 0, whole[-1].state)) == []


def test_actions_that_were_drawn_lead_where_the_plainest_world_says():
    config = small("actor_critic", train={"horizon": 1, "minibatch_size": 8})
    dataset = collect(config, 0)
    first, other = (moved(config, dataset, draws) for draws in (1, 2))
    both = (first.pid[:, 0] >= 0) & (other.pid[:, 0] >= 0)
    assert not (first.pos == other.pos).flatten(1).all(1)[both].any()


def moved(config: ActorCriticConfig, dataset: Dataset, draws: int) -> Colonies:
    """The colonies of a fresh learner after a step with actions drawn from that seed, checked one
    by one.
    """
    world = make_world(config.env.rules, dataset.train.plates)
    seed = train.init_state(config, dataset, 0).seeds[0]
    drawn = seed.ranks[0]._replace(policy=torch.Generator().manual_seed(draws).get_state())
    trainer = trainers.from_state(config, world, seed._replace(ranks=(drawn,)))
    before, after = (
        trainer.rollout_state.colonies,
        rollout.collect_rollout(
            trainer.actor, trainer.rollout_state, trainer.rollout
        ).state.colonies,
    )
    action = trainer.actor.policy.action(trainer.rollout.raw_action[0])
    rows = (~(trainer.rollout.terminated | trainer.rollout.truncated))[0].nonzero()[:, 0].tolist()
    assert len(rows) > 12
    for row in rows:
        table = world.intensity[before.substrate[row]].tolist()
        colony = plain.Colony(config.env.rules, plain.Plate("user", table=table))
        colony.start(before.pos[row, : before.n[row]].tolist())
        expected = colony.step(action[row].tolist()).after
        assert after.n[row] == len(expected.x)
        cells = torch.tensor([expected.x, expected.y]).T
        torch.testing.assert_close(after.pos[row, : after.n[row]], cells, atol=1e-4, rtol=1e-4)
        assert after.parent[row, : after.n[row]].tolist() == expected.parent
    return after
