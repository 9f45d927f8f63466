"""The served field is the one that is scored, for both families; and what it refuses."""

import re
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import FieldEstimate, estimate_field
from quatrain.models.active_dynamics.serve import answer, export
from tests.models.active_dynamics.small_trials import RUNS, VAE, at, both_families, configured

FORMS: dict[str, dict[str, Any]] = {
    **{name: RUNS[name] for name in ("space", "learned channels", "ensemble")},
    "active arm second": {"train": {"arms": ["random", "active"]}},
    "no active arm": {"train": {"arms": ["step"]}},
    "seq_vae": {"network": VAE},
    "mlp and learned channels": {
        "network": VAE | {"decoder": "mlp", "seq_vae": {"dynamics": "mlp"}}
    },
    "linear": {"network": VAE | {"seq_vae": {"dynamics": "linear"}}},
}


class Served(NamedTuple):
    """Holds what is exported of a run, and what its learners know of the field."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    arrays: dict[str, np.ndarray]
    estimate: FieldEstimate


@cache
def served(form: str) -> Served:
    config = configured(**FORMS[form])
    training = at(config, 20)
    state, dataset = training.to_state(), training.dataset
    estimate = estimate_field(config, training.learner, state, dataset)
    return Served(config, dataset, export(config, state, dataset), estimate)


@pytest.mark.parametrize("form", FORMS)
def test_the_served_field_is_the_scored_one_of_the_first_active_learner(form: str):
    config, dataset, arrays, estimate = served(form)
    result = answer(config, arrays, {"states": dataset.held_out.grid})
    learner = 2 if form == "active arm second" else 0
    np.testing.assert_allclose(result["velocity"], estimate.mean[learner], rtol=1e-6, atol=1e-7)
    deviation = np.sqrt(estimate.variance[learner])
    np.testing.assert_allclose(result["deviation"], deviation, rtol=1e-6, atol=1e-7)
    if form == "active arm second":
        same = [np.allclose(result["velocity"], mean) for mean in estimate.mean]
        assert same == [False, False, True, False]


@pytest.mark.parametrize("form", ["learned channels", "mlp and learned channels"])
def test_a_field_in_latent_coordinates_is_served_in_true_ones(form: str):
    config, dataset, arrays, estimate = served(form)
    latent = arrays | {"matrix": np.eye(2), "offset": np.zeros(2)}
    velocity = answer(config, latent, {"states": dataset.held_out.grid})["velocity"]
    assert not np.allclose(velocity, estimate.mean[0], atol=1e-3)


@both_families
def test_arrays_are_of_one_learner_and_refused_under_another_config(family: str):
    _, dataset, arrays, _ = served("seq_vae" if family == "seq_vae" else "active arm second")
    assert arrays["field/weight"].size == 2 * 25
    assert arrays["covariance"].shape == ((2, 25, 25) if family == "bayes_filter" else (25, 25))
    other = configured(family, network={"rbf": {"side": 6}})
    message = r"^not a learner of this config: field/weight is float\d\d\(.*25\), not "
    with pytest.raises(ValueError, match=message):
        answer(other, arrays, {"states": dataset.held_out.starts})


@pytest.mark.parametrize(
    ("request_", "message"),
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
def test_a_request_that_is_no_state_is_refused(request_: dict[str, np.ndarray], message: str):
    config, _, arrays, _ = served("active arm second")
    with pytest.raises(ValueError, match=f"^{re.escape(f'active_dynamics: {message}')}$"):
        answer(config, arrays, request_)
