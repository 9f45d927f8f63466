"""The served policy against the one that is judged; and what it refuses to be asked."""

import functools
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quatrain.envs.colony.dynamics import Colonies, World, make_world
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.rules import PARAMETERS
from quatrain.models.actor_critic.collect import Dataset, collect, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.evaluate import evaluate_policy
from quatrain.models.actor_critic.ppo.acting import Actor, deterministic_policy, observe
from quatrain.models.actor_critic.ppo.trainer import load_actor
from quatrain.models.actor_critic.serve import answer, export, request
from quatrain.models.actor_critic.train import State, train
from tests.models.actor_critic.small_runs import configured, free

FORMS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "all that the original saw, a squashed Gaussian, values by component": {
        "env": {"features": "full"},
        "network": {"policy": "squashed_gaussian", "value_heads": "components"},
    },
    "features as they are, two free numbers": {
        "env": {"obs_norm": "none", "action": free("delete_ratio", "theta")},
    },
}
"""Changes to the small config."""
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Batches of other widths are summed in another order."""


class Trained(NamedTuple):
    """A learner, and its policy as it is judged, in the world of the held-out plates."""

    config: ActorCriticConfig
    dataset: Dataset
    state: State
    world: World
    actor: Actor

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return export(self.config, self.state, self.dataset)

    @property
    def request(self) -> dict[str, np.ndarray]:
        return request(self.config, self.dataset)

    def asked(self, colonies: Colonies) -> dict[str, np.ndarray]:
        """A request about these."""
        return {
            "positions": colonies.pos.numpy(),
            "cells": colonies.n.numpy(),
            "parents": colonies.parent.numpy(),
            "ages": colonies.age.numpy().astype(int),
            "left_moves": colonies.left.numpy(),
            "stiffness": self.world.intensity[colonies.substrate].numpy(),
        }

    def answers(self, **changes: Any) -> dict[str, np.ndarray]:
        """To the example, some of it changed."""
        return answer(self.config, self.arrays, self.request | changes)


@functools.cache
def trained(form: str = "as it is") -> Trained:
    config = configured(**FORMS[form])
    dataset = collect(config, 0)
    *_, last = train(config, dataset, 1)
    world = make_world(config.env.rules, dataset.held_out.plates)
    return Trained(
        config, dataset, last.state, world, load_actor(config, world, last.state.seeds[0])
    )


def lived(run: Trained) -> list[Colonies]:
    """The held-out colonies before each step of their episodes, under the policy that is judged.

    It never moves to the left; that they did is pretended.
    """
    act, result, limit = deterministic_policy(run.actor), [], run.config.env.left_limit

    def watched(rows: torch.Tensor, colonies: Colonies) -> torch.Tensor:
        result.append(colonies._replace(left=rows % limit))
        return act(rows, colonies)

    for _ in episodes(
        run.world, make_colonies(run.config.env.rules, run.dataset.held_out.colonies), watched
    ):
        pass
    return result


@pytest.mark.parametrize("form", FORMS)
def test_served_actions_and_values_are_those_of_the_evaluated_policy_in_every_step(
    form: str,
):
    run, arrays = trained(form), trained(form).arrays
    steps = lived(run)
    assert max(int(colonies.age.max()) for colonies in steps) > 1
    for colonies in steps:
        result = answer(run.config, arrays, run.asked(colonies))
        action = np.stack([result[name] for name in PARAMETERS], 1)
        np.testing.assert_allclose(
            action, deterministic_policy(run.actor)(colonies.n, colonies), **CLOSE
        )
        with torch.no_grad():
            value = run.actor.eager(observe(run.actor, colonies)).value.reshape(len(colonies.n), -1)
        weights = run.world.weights if value.shape[1] > 1 else torch.ones(1)
        np.testing.assert_allclose(result["value"], value @ weights, **CLOSE)


def test_the_example_is_the_first_held_out_colonies_answered_as_in_the_first_step_of_evaluation():
    run = trained()
    asked, (outcome,) = run.request, evaluate_policy(run.config, run.state, run.dataset)
    assert asked["cells"].tolist() == run.dataset.held_out.colonies.n[:3].tolist()
    for place, name in enumerate(PARAMETERS):
        np.testing.assert_allclose(run.answers()[name], outcome.action[0, :3, place], **CLOSE)


def test_numbers_that_are_held_are_answered_as_they_are_held():
    result, fixed = (
        trained("features as they are, two free numbers").answers(),
        free("delete_ratio", "theta")["fixed_params"],
    )
    for name, value in fixed.items():
        assert np.allclose(result[name], value), name


def test_of_several_seeds_the_first_is_served():
    config = configured(seeds=2, train={"transitions": 24 * 8})
    dataset = collect(config, 0)
    *_, last = train(config, dataset, 1)
    first, second = last.state.seeds
    arrays = export(config, last.state, dataset)
    name = "actor.3.bias"
    assert np.array_equal(arrays[f"params/{name}"], first.params[name])
    assert not np.array_equal(arrays[f"params/{name}"], second.params[name])


def test_a_question_is_answered_alike_alone_and_among_others():
    run, together = trained(), trained().answers()
    for place in range(3):
        alone = answer(
            run.config, run.arrays, {name: ours[[place]] for name, ours in run.request.items()}
        )
        for name, values in alone.items():
            np.testing.assert_allclose(values, together[name][[place]], **CLOSE)


def test_what_stands_beyond_the_cells_is_not_looked_at():
    run = trained()
    asked = run.request
    beyond = np.arange(run.config.env.max_nodes) >= asked["cells"][:, None]
    junk = {
        "positions": np.where(beyond[..., None], np.nan, asked["positions"]),
        "parents": np.where(beyond, 10**6, asked["parents"]),
        "ages": np.where(beyond, -7, asked["ages"]),
    }
    for name, values in run.answers(**junk).items():
        assert np.array_equal(values, run.answers()[name]), name


def test_answering_changes_neither_request_nor_arrays_and_draws_nothing():
    run = trained()
    arrays, asked = run.arrays, run.request
    before = torch.get_rng_state()
    once, again = (answer(run.config, arrays, asked) for _ in range(2))
    assert all(np.array_equal(once[name], again[name]) for name in once)
    assert all(np.array_equal(arrays[name], ours) for name, ours in run.arrays.items())
    assert all(np.array_equal(asked[name], ours) for name, ours in run.request.items())
    assert torch.equal(torch.get_rng_state(), before)


def test_answering_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("compiled")

    run = trained()
    compiled = run.config.model_copy(
        update={"train": run.config.train.model_copy(update={"compile": True})}
    )
    monkeypatch.setattr(torch, "compile", refuse)
    result = answer(compiled, run.arrays, run.request)
    assert all(np.array_equal(result[name], ours) for name, ours in run.answers().items())


def test_arrays_of_another_network_are_refused():
    run = trained()
    with pytest.raises(
        ValueError,
        match=r"^not a learner of this config: params/cells.weight is float32\(16, 16\), ",
    ):
        answer(configured(network={"d": 18}), run.arrays, run.request)


def refusal(message: str) -> Any:
    """What a request is refused with, in these words."""
    return pytest.raises(ValueError, match=f"^{re.escape(f'actor_critic: {message}')}$")


def changed(name: str, place: tuple[int, ...], value: float) -> dict[str, np.ndarray]:
    """The example's input with one number changed."""
    array = trained().request[name].astype(type(value))
    array[place] = value
    return {name: array}


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("cells", (1,), 0, "cells[1] is 0; give whole numbers in 1..32"),
        ("cells", (2,), 33, "cells[2] is 33; give whole numbers in 1..32"),
        ("positions", (0, 0, 1), np.nan, "positions[0, 0, 1] is nan; give numbers in 0.0..60.0"),
        ("positions", (1, 1, 0), 60.5, "positions[1, 1, 0] is 60.5; give numbers in 0.0..60.0"),
        ("parents", (0, 1), 1, "parents[0, 1] is 1; give whole numbers in -1..0"),
        ("ages", (2, 0), 13, "ages[2, 0] is 13; give whole numbers in 0..12"),
        ("left_moves", (0,), 5, "left_moves[0] is 5; give whole numbers in 0..4"),
        (
            "stiffness",
            (2, 59),
            0.0,
            "stiffness[2, 59] is 0.0; give numbers in 1e-06..3.4028235e+38",
        ),
        (
            "stiffness",
            (0, 3),
            1e300,
            "stiffness[0, 3] is 1e+300; give numbers in 1e-06..3.4028235e+38",
        ),
    ],
)
def test_a_number_that_no_colony_of_this_config_has_is_refused(
    name: str, place: tuple[int, ...], value: float, message: str
):
    with refusal(message):
        trained().answers(**changed(name, place, value))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"cells": np.array([3.0, 4.0, 5.0])},
            "cells is float64[3]; give whole numbers [questions]",
        ),
        (
            {"positions": np.zeros((3, 31, 2))},
            "positions is float64[3, 31, 2]; give numbers [questions, 32, 2]",
        ),
        (
            {"stiffness": np.full((3, 60), "soft")},
            "stiffness is <U4[3, 60]; give numbers [questions, 60]",
        ),
    ],
)
def test_inputs_of_another_kind_or_shape_are_refused(changes: dict[str, np.ndarray], message: str):
    with refusal(message):
        trained().answers(**changes)


def test_a_request_with_other_inputs_is_told_which_there_are():
    run = trained()
    names = "cells, positions, parents, ages, left_moves, stiffness"
    with refusal(f"the request has the inputs pos; give exactly {names}"):
        answer(run.config, run.arrays, {"pos": np.zeros(1)})
