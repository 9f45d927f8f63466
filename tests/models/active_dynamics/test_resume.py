"""A run that was cut off anywhere goes on as if it had not been: the same numbers, bit for bit."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from quatrain.models.active_dynamics import config as limits
from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import State, TrainingState
from quatrain.progress import Progress
from tests.models.active_dynamics.small_trials import configured

END = 50
HABITS = {"step_hold": 7, "prbs_hold": [3, 19]}
"""Held over the cut."""
PLANNER = {"hold": 2, "replan_every": 4}
"""Plans are made before the transitions 10, 14, ... 34, 38: not after 37."""
BRIEF = {"horizons": 2, "window": 4, "burn_in": 1}
COUNTS = {"kind": "loglinear", "noise": "poisson"}
SHORT, NARROW = {"episode_transitions": 6}, {"escape_radius": 1.1, "region_radius": 1.0}
ENSEMBLE = {"seq_vae": {"dynamics": "ensemble", "members": 3}, "decoder": "loglinear"}
ALL = ("active", "random", "step", "prbs", "chirp", "off")
CASES: dict[str, dict[str, Any]] = {
    "a filter": {"train": {"arms": ALL}},
    "a filter out of the box": {"env": NARROW},
    "a filter of counts, out of time": {"env": {**SHORT, "observation": COUNTS}},
    "a filter that learned its channels": {"network": {"decoder": "linear"}},
    "a network": {"family": "seq_vae", "train": {"arms": ("active", "prbs")}, "seeds": 1},
    "a network out of time": {
        "family": "seq_vae",
        "env": SHORT,
        "train": {"seq_vae": BRIEF},
        "seeds": 1,
    },
    "an ensemble that sees counts, out of time": {
        "family": "seq_vae",
        "env": {**SHORT, "observation": COUNTS},
        "network": ENSEMBLE,
        "train": {
            "acquisition": {"weights": {"variance": 0.0, "disagreement": 1.0}},
            "seq_vae": {**BRIEF, "optimizer": "sgd", "learning_rate": 1e-4, "mask": 0.2},
        },
        "seeds": 1,
    },
}


def config_of(case: str, record_every: int) -> ActiveDynamicsConfig:
    """All that differs is how often it tells of itself."""
    sections = CASES[case]
    local = {
        "transitions": END,
        "record_every": record_every,
        "policies": HABITS,
        "planner": PLANNER,
    }
    return configured(
        **sections | {"train": sections.get("train", {}) | local, "collect": {"warmup": 10}}
    )


class Case(NamedTuple):
    """A run that yielded after 37 transitions and at its end."""

    name: str
    dataset: Dataset
    cut: Progress
    last: Progress


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(limits, "LEARNED_WARMUP", 10)
        config = config_of(request.param, 37)
        dataset = collect(config, 0)
        cut, last = train.train(config, dataset, 0)
        assert (cut.step, last.step) == (37, END)
        yield Case(request.param, dataset, cut, last)


def assert_same(item: State, other: State) -> None:
    packed, others = train.to_arrays(item), train.to_arrays(other)
    assert packed.keys() == others.keys()
    for name, array in packed.items():
        np.testing.assert_array_equal(others[name], array, err_msg=name)


def test_after_37_transitions_and_a_rest_nothing_differs(case: Case):
    config = config_of(case.name, 37)
    saved = train.from_arrays(config, case.dataset, train.to_arrays(case.cut.state))
    assert_same(saved, case.cut.state)
    assert_same(TrainingState.from_state(config, case.dataset, saved).to_state(), saved)
    (rest,) = train.train(config, case.dataset, 1, saved)  # the seed says how a run begins
    assert_same(rest.state, case.last.state)
    assert rest.metrics.keys() == case.last.metrics.keys()
    for metric, values in rest.metrics.items():
        np.testing.assert_array_equal(values, case.last.metrics[metric], err_msg=metric)


def test_nothing_differs_after_a_cut_in_the_warm_up_however_often_it_yields(case: Case):
    config = config_of(case.name, 5)
    cut = next(train.train(config, case.dataset, 0))
    saved = train.from_arrays(config, case.dataset, train.to_arrays(cut.state))
    (rest,) = train.train(config_of(case.name, END), case.dataset, 0, saved)
    assert_same(rest.state, case.last.state)


def test_episodes_end_on_both_sides_of_the_cut(case: Case):
    truncated = case.last.state.replay.truncated[:, :END]
    for part in (truncated[:, :37], truncated[:, 37:]):
        assert part.any() == ("out of" in case.name)


def test_a_finished_run_has_nothing_left_to_learn(case: Case):
    assert list(train.train(config_of(case.name, END), case.dataset, 0, case.last.state)) == []
