"""The served field is the one that is scored, for both families; and what it refuses."""

from typing import Any

import numpy as np
import pytest

from quatrain.models.active_dynamics.evaluate import estimate_field
from quatrain.models.active_dynamics.serve import export, load
from quatrain.serving import MOST_QUESTIONS, answer
from tests.models.active_dynamics.small_trials import RUNS, VAE, at, configured

FORMS: dict[str, dict[str, Any]] = {
    **{name: RUNS[name] for name in ("space", "learned channels", "ensemble")},
    "active arm second": {"train": {"arms": ["random", "active"]}},
    "mlp and learned channels": {
        "network": VAE | {"decoder": "mlp", "seq_vae": {"dynamics": "mlp"}}
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_the_served_field_is_the_scored_one_of_the_first_active_learner(form: str):
    config = configured(**FORMS[form])
    training = at(config, 20)
    state, dataset = training.to_state(), training.dataset
    estimate = estimate_field(config, training.learner, state, dataset)
    arrays = export(config, state, dataset)
    grid = {"states": dataset.held_out.grid[:MOST_QUESTIONS]}
    result = answer("active_dynamics", load(config, arrays), grid)
    learner = 2 if form == "active arm second" else 0
    deviation = np.sqrt(estimate.variance[learner])
    for name, scored in (("velocity", estimate.mean[learner]), ("deviation", deviation)):
        np.testing.assert_allclose(result[name], scored[:MOST_QUESTIONS], rtol=1e-6, atol=1e-7)
    if form == "active arm second":
        same = [np.allclose(result["velocity"], mean) for mean in estimate.mean]
        assert same == [False, False, True, False]
    if "learned channels" in form:  # the field has latent coordinates
        latent = answer(
            "active_dynamics",
            load(config, arrays | {"matrix": np.eye(2), "offset": np.zeros(2)}),
            grid,
        )
        assert not np.allclose(latent["velocity"], estimate.mean[0], atol=1e-3)
