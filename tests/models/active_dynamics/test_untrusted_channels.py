"""What a comparison of policies must not flatter."""

import pytest

from quatrain.devices import on_device
from quatrain.registry import MODELS
from tests.conftest import params_with
from tests.test_contract import UNDEFINED, Small, undefined

HELD_BACK = {
    "network": {"family": "seq_vae", "decoder": "linear"},
    "train": {"seq_vae": {"max_misalignment": 0.0}},
}
"""Learned channels, and no trust in how actions move the states that they encode."""


def test_a_learner_that_cannot_plan_acts_as_the_random_one_says_so_and_is_not_sooner():
    with on_device(params_with({}), MODELS["active_dynamics"]):
        model = Small("active_dynamics", HELD_BACK)
        with pytest.warns(UserWarning, match="planned only 0% of the actions of arm active"):
            last = model.train()[-1]
        scores = model.evaluate(last.state)
    assert last.metrics["planned.active"].item() == scores["planned.active"] == 0
    assert scores["transition_ratio.random"] == 1 or undefined(scores) == [*UNDEFINED]
    pairs = {name: name.removesuffix("active") + "random" for name in scores if "active" in name}
    for name in pairs.keys() - {"planned.active"}:
        assert scores[name] == scores[pairs[name]], name
