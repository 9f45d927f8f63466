"""The served field against the one that is judged, of both families; and what it refuses to be
asked.
"""

import functools
import re
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import FieldEstimate, estimate_field
from quatrain.models.active_dynamics.serve import answer, export, request
from tests.conftest import small
from tests.models.active_dynamics.small_runs import RUNS
from tests.models.active_dynamics.small_trials import at, both_families, configured

TRANSITIONS = 20
"""Ten of them after the common start, but where channels are learned from a longer one."""
VAE = {"family": "seq_vae"}
FORMS: dict[str, dict[str, Any]] = {
    **{
        name: RUNS[name]
        for name in ("as it is", "a line", "a space", "counts", "learned channels", "an ensemble")
    },
    "the active arm second": {"train": {"arms": ["random", "active"]}},
    "one arm, which is not active": {"train": {"arms": ["step"]}},
    "seq_vae": {"network": VAE},
    "seq_vae of layers, with channels of its own": {
        "network": VAE | {"decoder": "mlp", "seq_vae": {"dynamics": "mlp"}}
    },
    "seq_vae of a matrix": {"network": VAE | {"seq_vae": {"dynamics": "linear"}}},
}
"""Changes to the small config, of two replicates."""
SERVED = {"the active arm second": 2}
"""Row that is served, where it is not the first."""


class Served(NamedTuple):
    """What is exported of a run, and what its rows know of the field when they are judged."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    arrays: dict[str, np.ndarray]
    estimate: FieldEstimate


@functools.cache
def served(form: str) -> Served:
    config = small("active_dynamics", **FORMS[form])
    training = at(config, TRANSITIONS)
    state = training.to_state()
    reference = estimate_field(config, training.learner, state, training.dataset)
    return Served(config, training.dataset, export(config, state, training.dataset), reference)


def of_family(family: str) -> Served:
    return served({"bayes_filter": "as it is", "seq_vae": "seq_vae"}[family])


@pytest.mark.parametrize("form", FORMS)
def test_the_served_field_and_its_deviation_are_what_the_row_is_judged_by_on_the_grid(form: str):
    config, dataset, arrays, reference = served(form)
    result, row = answer(config, arrays, {"states": dataset.held_out.grid}), SERVED.get(form, 0)
    np.testing.assert_allclose(result["velocity"], reference.mean[row], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        result["deviation"], np.sqrt(reference.variance[row]), rtol=1e-6, atol=1e-7
    )


def test_the_first_replicate_of_the_active_arm_is_served_and_no_other_row():
    config, dataset, arrays, reference = served("the active arm second")
    result = answer(config, arrays, {"states": dataset.held_out.grid})["velocity"]
    assert [np.allclose(result, mean) for mean in reference.mean] == [False, False, True, False]


@pytest.mark.parametrize(
    "form", ["learned channels", "seq_vae of layers, with channels of its own"]
)
def test_a_field_that_was_learned_in_coordinates_of_its_own_is_served_in_the_true_ones(form: str):
    """Read as if they were true, its own would tell of another field."""
    config, dataset, arrays, reference = served(form)
    local = arrays | {"matrix": np.eye(2), "offset": np.zeros(2)}
    asked = {"states": dataset.held_out.grid}
    assert np.allclose(answer(config, arrays, asked)["velocity"], reference.mean[0], atol=1e-6)
    assert not np.allclose(answer(config, local, asked)["velocity"], reference.mean[0], atol=1e-3)


def test_far_from_all_that_was_seen_a_filter_is_less_sure():
    config, _, arrays, _ = served("as it is")
    near, far = answer(config, arrays, {"states": np.array([[0.0, 0.0], [1.9, -1.9]])})["deviation"]
    assert (near < far).all()


@both_families
def test_a_question_is_answered_alike_alone_and_among_others(family: str):
    config, dataset, arrays, _ = of_family(family)
    states = dataset.held_out.grid[::50]
    together = answer(config, arrays, {"states": states})
    for place in range(len(states)):
        alone = answer(config, arrays, {"states": states[[place]]})
        for name, values in alone.items():
            np.testing.assert_allclose(values, together[name][[place]], rtol=1e-5, atol=1e-6)


@both_families
def test_the_example_are_the_states_that_held_out_rollouts_begin_at(family: str):
    config, dataset, arrays, _ = of_family(family)
    asked = request(config, dataset)
    assert np.array_equal(asked["states"], dataset.held_out.starts[:3])
    for values in answer(config, arrays, asked).values():
        assert values.shape == (3, 2)
        assert np.isfinite(values).all()


@both_families
def test_answering_changes_neither_request_nor_arrays_and_draws_nothing(family: str):
    config, dataset, arrays, _ = of_family(family)
    asked, before = request(config, dataset), torch.get_rng_state()
    kept = {name: local.copy() for name, local in arrays.items()}
    once, again = (answer(config, arrays, asked) for _ in range(2))
    assert all(np.array_equal(once[name], again[name]) for name in once)
    assert all(np.array_equal(arrays[name], local) for name, local in kept.items())
    assert np.array_equal(asked["states"], request(config, dataset)["states"])
    assert torch.equal(torch.get_rng_state(), before)


@both_families
def test_what_is_served_is_of_one_row_alone(family: str):
    config, _, arrays, _ = of_family(family)
    assert config.learners == 4
    assert arrays["field/weight"].size == 2 * 25
    assert arrays["covariance"].shape == ((2, 25, 25) if family == "bayes_filter" else (25, 25))


@both_families
def test_arrays_of_another_config_are_refused(family: str):
    _, dataset, arrays, _ = of_family(family)
    other = configured(family, network={"rbf": {"side": 6}})
    with pytest.raises(
        ValueError, match=r"^not a learner of this config: field/weight is float\d\d\(.*25\), not "
    ):
        answer(other, arrays, request(other, dataset))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "the request has the inputs none; give exactly states"),
        (
            {"states": np.zeros((1, 3), np.float32)},
            "states is float32[1, 3]; give numbers [questions, 2]",
        ),
        (
            {"states": np.array([[0, 0], [0, np.nan]])},
            "states[1, 1] is nan; give numbers in -1000000.0..1000000.0",
        ),
        (
            {"states": np.array([[-2e6, 0]])},
            "states[0, 0] is -2000000.0; give numbers in -1000000.0..1000000.0",
        ),
    ],
)
def test_what_is_no_state_of_the_system_is_refused(asked: dict[str, np.ndarray], message: str):
    config, _, arrays, _ = served("as it is")
    with pytest.raises(ValueError, match=f"^{re.escape(f'active_dynamics: {message}')}$"):
        answer(config, arrays, asked)
