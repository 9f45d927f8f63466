"""A run that was cut off anywhere goes on as if it had not been: the same numbers, bit for bit."""

from typing import Any, NamedTuple

import numpy as np
import pytest

from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import State, TrainingState
from quatrain.progress import Progress
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
    "filter of counts, out of time": {"env": {**SHORT, "observation": COUNTS}},
    "filter with learned channels": {"network": {"decoder": "linear"}},
    "network": {"family": "seq_vae", "train": {"arms": ("active", "prbs")}, "seeds": 1},
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


class Case(NamedTuple):
    """Holds a run that yielded after 37 transitions and at its end."""

    name: str
    dataset: Dataset
    cut: Progress
    last: Progress

    def train(self, record_every: int, state: State | None, seed: int = 0) -> list[Progress]:
        """Trains from a state that was packed and unpacked."""
        config = config_of(self.name, record_every)
        if state is not None:
            state = train.from_arrays(config, self.dataset, train.to_arrays(state))
        with shapes_unchecked():
            return list(train.train(config, self.dataset, seed, state))


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    config = config_of(request.param, 37)
    with shapes_unchecked():
        dataset = collect(config, 0)
        cut, last = train.train(config, dataset, 0)
    assert (cut.step, last.step) == (37, END)
    truncated = last.state.replay.truncated[:, :END]
    for part in (truncated[:, :37], truncated[:, 37:]):
        assert part.any() == ("out of" in request.param)
    return Case(request.param, dataset, cut, last)


def assert_same(item: State, other: State) -> None:
    np.testing.assert_equal(train.to_arrays(item), train.to_arrays(other))


def test_nothing_differs_after_a_cut_at_a_yield(case: Case):
    """The seed says how a run begins, not how it goes on."""
    config = config_of(case.name, 37)
    unpacked = TrainingState(config, case.dataset, case.cut.state).to_state()
    assert_same(unpacked, case.cut.state)
    (rest,) = case.train(37, case.cut.state, seed=1)
    assert_same(rest.state, case.last.state)
    np.testing.assert_equal(dict(rest.metrics), dict(case.last.metrics))


def test_nothing_differs_after_a_cut_in_the_warm_up_however_often_it_yields(case: Case):
    with shapes_unchecked():
        cut = next(train.train(config_of(case.name, 5), case.dataset, 0))
    (rest,) = case.train(END, cut.state)
    assert_same(rest.state, case.last.state)
    assert case.train(END, case.last.state) == []
