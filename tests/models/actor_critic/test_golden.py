"""The terms of the loss of a small batch as numbers."""

import pytest
import torch

from quatrain.models.actor_critic import train
from quatrain.models.actor_critic.collect import collect
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.losses import TERMS
from quatrain.models.actor_critic.ppo import iteration
from quatrain.models.actor_critic.ppo import learner as learning
from quatrain.models.actor_critic.ppo.iteration import MINIBATCH_METRICS
from quatrain.replay.rollouts.buffer import Graphs, Minibatch
from tests.conftest import shapes_unchecked, small
from tests.torch_numbers import wave

BATCH, CELLS, ACTIONS, COMPONENTS = 3, 5, 4, 6


def config_of(policy: str, value_heads: str) -> ActorCriticConfig:
    """With all that the terms depend on."""
    bounds = {"delete_ratio": (0.0, 0.7), "gamma": (0.5, 15.0)}
    bounds |= {"alpha": (0.5, 4.0), "theta": (-0.5, 0.5)}
    action = {"bounds": bounds, "active_params": tuple(bounds), "fixed_params": {"noise": 0.5}}
    return small(
        "actor_critic",
        env={"features": "light", "action": action},
        network={"d": 8, "heads": 2, "layers": 2, "policy": policy, "value_heads": value_heads},
        train={"clip": 0.2, "value_clip": 0.3},
    )


def batch_of(values: tuple[int, ...]) -> Minibatch:
    n = torch.tensor([5, 1, 3])
    mask = torch.arange(CELLS) < n[:, None]
    parent = torch.where(mask, torch.tensor([-1, 0, 0, 2, -1]), -1)
    node = wave(BATCH, CELLS, 8, start=1.0) * mask[..., None]
    graphs = Graphs(node, wave(BATCH, 10, start=2.0), parent, mask)
    return Minibatch(
        groups=(graphs,),
        raw_action=0.5 + 0.4 * wave(BATCH, ACTIONS, start=3.0),
        log_prob=torch.tensor([-7.2, -4.3, -3.2]),
        dist_params=torch.stack(
            [2 + wave(BATCH, ACTIONS, start=5.0), 2 + wave(BATCH, ACTIONS, start=6.0)], 1
        ),
        value=wave(BATCH, *values, start=7.0),
        advantage=wave(BATCH, start=8.0),
        returns=wave(BATCH, *values, start=9.0),
    )


@pytest.mark.parametrize(
    ("policy", "value_heads", "expected"),
    [
        ("beta", "total", (-0.264692, 4.894362, -2.404616)),
        ("squashed_gaussian", "components", (-0.355113, 1.966127, -1.995534)),
    ],
)
def test_the_terms_of_a_batch_are_these_numbers(
    policy: str, value_heads: str, expected: tuple[float, ...]
):
    config = config_of(policy, value_heads)
    with shapes_unchecked():
        dataset = collect(config, 0)
    learner = learning.from_state(config, dataset, train.init_state(config, dataset, 0).seeds[0])
    with torch.no_grad():
        for place, param in enumerate(learner.network.parameters()):
            param.copy_(0.4 * wave(*param.shape, start=float(place)))
    batch = batch_of(() if value_heads == "total" else (COMPONENTS,))
    _, row = iteration.objective(learner, batch, 0.01)
    result = dict(zip(MINIBATCH_METRICS, row.tolist(), strict=True))
    assert [result[term] for term in TERMS] == pytest.approx(expected, rel=1e-4)
