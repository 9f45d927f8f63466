"""The served policy against the one that is judged; and what it refuses to be asked."""

import functools
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quatrain.envs.colony.config import PARAMETERS
from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.world import episodes
from quatrain.models.actor_critic.colony import View, spec_of, view_of
from quatrain.models.actor_critic.colony_data import Dataset, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import Actor, load_actor
from quatrain.models.actor_critic.serve import export, load, request
from quatrain.serving import answer
from tests.conftest import shapes_unchecked, small
from tests.models.actor_critic import learners
from tests.models.actor_critic.learners import dataset_of

FIXED = {"gamma": 12.0, "alpha": 1.0, "noise": 0.4}
FORMS: dict[str, dict[str, Any]] = {
    "as it is, of two seeds": {"seeds": 2},
    "all features, two free numbers, a squashed Gaussian, values by component": {
        "env": {
            "features": "full",
            "action": {"active_params": ["delete_ratio", "theta"], "fixed_params": FIXED},
        },
        "network": {"policy": "squashed_gaussian", "value_heads": "components"},
    },
}
"""Changes to the small config."""
PLAIN = next(iter(FORMS))
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Batches of other widths are summed in another order."""


class Trained(NamedTuple):
    """A learner, and its policy as it is judged, in the world of the held-out plates."""

    config: ActorCriticConfig
    dataset: Dataset
    arrays: dict[str, np.ndarray]
    view: View
    actor: Actor

    def answers(self, asked: dict[str, np.ndarray], **train: Any) -> dict[str, np.ndarray]:
        section = self.config.train.model_copy(update=train)
        return answer(
            "actor_critic",
            load(self.config.model_copy(update={"train": section}), self.arrays),
            asked,
        )


@functools.cache
def trained(form: str = PLAIN) -> Trained:
    config = small("actor_critic", **FORMS[form], train={"transitions": 24 * 8 * 2})
    dataset, last = dataset_of(config), learners.trained(config)
    (best, *_), (scale, *_) = last.state.best, last.state.scale
    view = view_of(config, dataset.held_out.plates, scale)
    actor = load_actor(config, spec_of(config), best.params)
    return Trained(config, dataset, export(config, last.state, dataset), view, actor)


def example() -> dict[str, np.ndarray]:
    return request(trained().config, trained().dataset)


def asked(run: Trained, colonies: Colonies) -> dict[str, np.ndarray]:
    """A request about these."""
    return {
        "positions": colonies.pos.numpy(),
        "cells": colonies.n.numpy(),
        "parents": colonies.parent.numpy(),
        "ages": colonies.age.numpy().astype(int),
        "left_moves": colonies.left.numpy(),
        "stiffness": run.view.world.intensity[colonies.substrate].numpy(),
    }


def lived(run: Trained) -> list[Colonies]:
    """Held-out colonies before each step of the judged policy; moves to the left are pretended."""
    act, result, limit = run.view.playing(run.actor.act), [], run.config.env.left_limit

    def watched(rows: torch.Tensor, colonies: Colonies) -> torch.Tensor:
        result.append(colonies._replace(left=rows % limit))
        return act(rows, colonies)

    first = make_colonies(run.config.env, run.dataset.held_out.colonies)
    for _ in episodes(run.view.world, first, watched):
        pass
    return result


@pytest.mark.parametrize("form", FORMS)
def test_served_actions_and_values_are_those_of_the_evaluated_policy_in_every_step(form: str):
    run = trained(form)
    with shapes_unchecked():
        steps = lived(run)
    assert max(int(colonies.age.max()) for colonies in steps) > 1
    for colonies in steps:
        result = run.answers(asked(run, colonies))
        action = np.stack([result[name] for name in PARAMETERS], 1)
        expected = run.view.playing(run.actor.act)(colonies.n, colonies)
        np.testing.assert_allclose(action, expected, **CLOSE)
        value = run.actor.value(run.view.observe(colonies)).reshape(len(colonies.n), -1)
        weights = run.view.world.weights if value.shape[1] > 1 else torch.ones(1)
        np.testing.assert_allclose(result["value"], value @ weights, **CLOSE)


def test_what_stands_beyond_the_cells_is_not_looked_at():
    plain = example()
    beyond = np.arange(trained().config.env.max_nodes) >= plain["cells"][:, None]
    junk = {
        "positions": np.where(beyond[..., None], np.nan, plain["positions"]),
        "parents": np.where(beyond, 10**6, plain["parents"]),
        "ages": np.where(beyond, -7, plain["ages"]),
    }
    np.testing.assert_equal(trained().answers(plain | junk), trained().answers(plain))


def test_answering_draws_and_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    before, expected = torch.get_rng_state(), trained().answers(example())
    monkeypatch.delattr(torch, "compile")
    np.testing.assert_equal(trained().answers(example(), compile=True), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("parents", (0, 1), 1, "parents[0, 1] is 1; give whole numbers in -1..0"),
        ("stiffness", (2, 9), 0.0, "stiffness[2, 9] is 0.0; give numbers in 1e-06..3.4028235e+38"),
    ],
)
def test_a_cell_that_is_its_own_parent_and_a_plate_without_stiffness_are_refused(
    name: str, place: tuple[int, ...], value: float, message: str
):
    array = example()[name].copy()
    array[place] = value
    with pytest.raises(ValueError, match=f"^{re.escape(f'actor_critic: {message}')}$"):
        trained().answers(example() | {name: array})
