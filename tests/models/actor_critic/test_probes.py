"""In worlds whose values are known the learner finds them: each world asks one thing of it."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quatrain.envs.colony.config import PARAMETERS
from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.world import start
from quatrain.models.actor_critic.colony import View, spec_of, view_of
from quatrain.models.actor_critic.network import Actor, load_actor
from quatrain.progress import Progress
from quatrain.validation import overlaid
from tests.conftest import small
from tests.models.actor_critic.learners import dataset_of, trained

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings(
        "ignore:actor_critic.env.max_steps .* success is impossible:UserWarning"
    ),
]

DISCOUNT = 0.5
STILL = {
    "delete_ratio": (0.0, 0.1),
    "gamma": (0.01, 0.02),
    "noise": (0.01, 0.02),
    "theta": (-0.01, 0.01),
}
"""Actions that do next to nothing: a colony of at most 8 cells doubles where it is."""
ONE_STEP = {"n0_min": 8, "n0_max": 8}
"""Of colonies that overflow in their first step."""
UNPAID = {"preset": "centroid_distance_only", "weights": {"distance": 0, "terminal_scaled": 0}}
PROBE: dict[str, Any] = {
    "env": {
        "max_nodes": 8,
        "target_nodes": 2,
        "n0_min": 1,
        "max_steps": 100,
        "obs_norm": "none",
        "allow_unbounded_growth": True,
        "action": {"bounds": STILL},
        "reward": UNPAID,
    },
    "collect": {"n_train": 16, "n_held_out": 1, "n_outside": 0, "held_out_colonies": 32},
    "train": {
        "num_envs": 256,
        "horizon": 2,
        "epochs": 8,
        "minibatch_size": 512,
        "discount": DISCOUNT,
        "discount_end": DISCOUNT,
        "value_clip": 0.0,
        "target_kl": 10.0,
        "lr_final_fraction": 0.02,
        "entropy_start": 0.0,
        "entropy_end": 0.0,
        "record_every": 5,
    },
}
"""Changes of the small config."""
BETA = {"policy": "beta", "value_heads": "total"}
SQUASHED = {"policy": "squashed_gaussian", "value_heads": "components"}


class Solved(NamedTuple):
    """What was learned in a world, and colonies there that have not been met."""

    actor: Actor
    view: View
    end: Progress
    colonies: Colonies


def solved(
    iterations: int, network: dict[str, str], train_changes: Any = None, **env: Any
) -> Solved:
    """After the whole training, in a world with its env changed."""
    brief = {"transitions": iterations * 512} | (train_changes or {})
    changes = overlaid(PROBE, {"network": network, "env": env, "train": brief})
    config = small("actor_critic", **changes)
    dataset, end = dataset_of(config), trained(config)
    (seed,) = end.state.seeds
    view = view_of(config, dataset.train.plates, seed.scale)
    actor = load_actor(config, spec_of(config), seed.best.params)
    return Solved(actor, view, end, start(view.world, 256, torch.Generator().manual_seed(7)))


def reward(**weights: float) -> dict[str, Any]:
    return {"reward": {"weights": weights}}


def acting(**bounds: tuple[float, float]) -> dict[str, Any]:
    return {"action": {"bounds": bounds}}


def values(result: Solved) -> np.ndarray:
    """Of each colony, and of each component where each has a head."""
    of_colonies = result.actor.value(result.view.observe(result.colonies))
    return of_colonies.reshape(len(of_colonies), -1).numpy()


def actions(result: Solved, name: str) -> np.ndarray:
    """Without the policy's spread."""
    action = result.view.playing(result.actor.act)(torch.zeros(0), result.colonies)
    return action[:, PARAMETERS.index(name)].numpy()


def test_an_end_is_discounted_once_for_each_step_before_it_and_nothing_follows():
    """Colonies of 1..8 cells double in each step until they are more than 8."""
    result = solved(24, SQUASHED, **reward(time=1, terminal=1))
    left = DISCOUNT ** np.floor(np.log2(8 / result.colonies.n.numpy()))
    expected = np.stack([-(1 - DISCOUNT * left) / (1 - DISCOUNT), -left], 1)
    assert set(left) == {1, 0.5, 0.25, 0.125}
    for item in set(left):
        errors = (values(result) - expected)[left == item]
        np.testing.assert_allclose(errors.mean(0), 0, atol=0.15)
        assert np.abs(errors).mean() < 0.15


def test_effort_is_spared_and_a_colony_steered_to_the_middle():
    bounds = acting(gamma=(0.5, 5), noise=(10, 10.01), theta=(-1, 1))
    result = solved(18, BETA, **reward(metabolic=0.1, lane=3), **bounds, **ONE_STEP)
    np.testing.assert_array_less(actions(result, "gamma"), 2.0)
    off = result.colonies.centroid[:, 1].numpy() - result.view.world.rules.height / 2
    theta = actions(result, "theta")
    np.testing.assert_array_less(theta[off > 5], -0.5)
    np.testing.assert_array_less(0.5, theta[off < -5])


def test_an_end_that_is_steps_away_is_avoided():
    """Colonies of 4 cells that delete none overflow in their third step."""
    begun = {"n0_min": 4, "n0_max": 4, "max_nodes": 16, "max_steps": 12}
    free = acting(delete_ratio=(0.0, 0.7))
    result = solved(15, BETA, {"discount": 0.9}, **reward(terminal=1), **free, **begun)
    assert result.end.metrics["reason/timeout"][-1] > 0.95
