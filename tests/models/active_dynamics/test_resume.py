"""A run that was cut off anywhere goes on as if it had not been: the same numbers, bit for bit."""

from typing import Any

import numpy as np
import pytest

from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import DISAGREEMENT, ENSEMBLE, configured

END = 50
TRAIN = {
    "transitions": END,
    "policies": {"step_hold": 7, "prbs_hold": [3, 19]},
    "planner": {"hold": 2, "replan_every": 4},
}
"""Actions are held over the cut; plans are made before the transitions 10, 14, ... 34, 38."""
BRIEF = {"horizons": 2, "window": 4, "burn_in": 1}
COUNTS = {"kind": "loglinear", "noise": "poisson"}
SHORT, NARROW = {"episode_transitions": 6}, {"escape_radius": 1.1, "region_radius": 1.0}
CASES: dict[str, dict[str, Any]] = {
    "filter, out of the box": {
        "env": NARROW,
        "train": {"arms": ("active", "random", "step", "prbs")},
    },
    "ensemble that observes counts, out of time": {
        "family": "seq_vae",
        "env": {**SHORT, "observation": COUNTS},
        "network": ENSEMBLE | {"decoder": "loglinear"},
        "train": {
            "acquisition": DISAGREEMENT,
            "seq_vae": {**BRIEF, "optimizer": "sgd", "learning_rate": 1e-4, "mask": 0.2},
        },
        "seeds": 1,
    },
}


def config_of(name: str, record_every: int) -> ActiveDynamicsConfig:
    brief = {"train": CASES[name].get("train", {}) | TRAIN | {"record_every": record_every}}
    return configured(**CASES[name] | brief, collect={"warmup": 10})


@pytest.mark.parametrize("name", CASES)
def test_nothing_differs_after_a_cut(name: str):
    """At a yield, or in the warm-up, however often it yields; the seed says how a run begins, not
    how it goes on.
    """
    config, at_once, brief = (config_of(name, record_every) for record_every in (37, END, 5))
    with shapes_unchecked():
        dataset = collect(config, 0)
        cut, last = train.train(config, dataset, 0)
        early = next(train.train(brief, dataset, 0))
        assert last.state.replay.truncated[:, :37].any()
        for before in (cut, early):
            state = train.from_arrays(at_once, dataset, train.to_arrays(before.state))
            (rest,) = train.train(at_once, dataset, 1, state)
            np.testing.assert_equal(train.to_arrays(rest.state), train.to_arrays(last.state))
