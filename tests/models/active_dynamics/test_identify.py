"""Own data: a field is learned from recorded runs or from a system, and faults have one line."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from quatrain.errors import DataError
from quatrain.models.active_dynamics import identify
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import Rollouts
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.identify import make_system
from tests.conftest import params_with, shapes_unchecked
from tests.models.active_dynamics.own_systems import CHANNELS, OFFSET, Cycle, velocity

HERE = "tests.models.active_dynamics.own_systems"
RUNS, TIMES = 8, 200


def config_with(transitions: int = 1400, warmup: int = 1250, **env: Any) -> ActiveDynamicsConfig:
    changes = {
        "seeds": 1,
        "env": env,
        "collect": {"warmup": warmup},
        "network": {"decoder": "linear", "rbf": {"side": 6, "length": 0.8}},
        "train": {"arms": ["random"], "transitions": transitions},
    }
    return params_with({"active_dynamics": changes}).active_dynamics


@cache
def arrays() -> dict[str, np.ndarray]:
    env, draws = Cycle(), np.random.default_rng(1)
    observations, actions = np.zeros((RUNS, TIMES + 1, 10)), draws.uniform(-1, 1, (RUNS, TIMES, 2))
    for run in range(RUNS):
        observations[run, 0] = env.reset(seed=run)[0]
        for time in range(TIMES):
            observations[run, time + 1] = env.step(actions[run, time])[0]
    return {"observations": observations, "actions": actions}


@cache
def learned() -> tuple[BayesFilterLearner, Rollouts]:
    config = config_with()
    recording = identify.read_recording(config, "runs.npz", arrays())
    train, held_out = identify.split(recording)
    with shapes_unchecked():
        return identify.learn(config, train), held_out


def true_error(learner: BayesFilterLearner, radius: float = 1.2) -> float:
    """Returns the relative error of the field in true coordinates, within a radius."""
    inverse = np.linalg.pinv(CHANNELS)
    assert learner.decoder is not None
    weight, bias, _ = (part[0].numpy() for part in learner.decoder)
    matrix, offset = inverse @ weight, inverse @ (bias - OFFSET)
    line = np.linspace(-radius, radius, 21)
    x = np.stack(np.meshgrid(line, line), -1).reshape(-1, 2)
    x = x[np.linalg.norm(x, axis=1) <= radius]
    z = torch.tensor((x - offset) @ np.linalg.inv(matrix).T)[None]
    field = learner.moments(z).mean[0].numpy() @ matrix.T
    return float(np.linalg.norm(field - velocity(x)) / np.linalg.norm(velocity(x)))


# What is learned.


def test_runs_are_transitions_and_none_leads_from_one_run_to_the_next():
    recording = identify.read_recording(config_with(), "runs.npz", arrays())
    assert recording.truncated[0].nonzero()[0].tolist() == [
        TIMES * (run + 1) - 1 for run in range(RUNS)
    ]
    stored = arrays()["observations"].astype(np.float32)
    np.testing.assert_array_equal(recording.observations[0, TIMES], stored[1, 0])
    np.testing.assert_array_equal(recording.next_observations[0, TIMES - 1], stored[0, -1])
    train, held_out = identify.split(recording)
    assert (train.transitions, held_out.transitions) == (1280, 320)


def test_the_field_of_recorded_runs_is_learned_and_explains_held_out_ones():
    learner, held_out = learned()
    assert true_error(learner) < 0.35
    with shapes_unchecked():
        scores = identify.evaluate(learner, held_out)
    assert scores["innovation_nll"] < scores["innovation_nll_zero_field"] - 0.01
    assert scores["nis"] < 1.3 < 2 * scores["nis"] < scores["nis_zero_field"] * 2


def test_after_a_run_that_ends_with_the_last_transition_the_state_is_that_of_the_next_start():
    train = identify.read_recording(config_with(), "runs.npz", arrays()).part(0, TIMES)
    start, end = train.observations[0, -1], train.next_observations[0, -1]
    with shapes_unchecked():
        learner = identify.learn(config_with(), train)
    state = learner.belief.mean[:, :2].float()
    observed = learner.emission.mean(state)[0].numpy()
    assert np.linalg.norm(observed - start) < np.linalg.norm(observed - end) / 2


def test_a_system_is_learned_by_an_arm_that_acts():
    config = config_with(transitions=1350)
    with shapes_unchecked():
        learner, held_out = identify.explore(config, make_system(f"{HERE}:Cycle", 0), "active", 0)
        assert identify.evaluate(learner, held_out)["nis"] < 1.5
    assert held_out.transitions == identify.HELD_OUT_TRANSITIONS
    assert true_error(learner) < 0.2


# Faults.


def changed(name: str, change: Any) -> dict[str, np.ndarray]:
    return arrays() | {name: change(arrays()[name])}


def spoilt(name: str, place: Any, value: float) -> dict[str, np.ndarray]:
    values = arrays()[name].copy()
    values[place] = value
    return arrays() | {name: values}


@pytest.mark.parametrize(
    ("faulty", "message"),
    [
        ({"actions": np.zeros((1, 1, 1))}, "runs.npz holds actions; numpy.savez it with exactly"),
        (
            spoilt("observations", (2, 3, 1), np.nan),
            "observations is nan in run 2, time 3, channel 1, not from -1e+06 to 1e+06; leave",
        ),
        (spoilt("actions", ..., 1e300), "1e+300 in run 0, time 0, channel 0, not from"),
        (changed("actions", lambda a: a[0]), r"actions is float64 of shape (200, 2); save floats"),
        (changed("actions", lambda a: a.astype(int)), "actions is int64 of shape"),
        (changed("actions", lambda a: a[:, 1:]), "expected (8, 200, channels): one more in"),
        (
            changed("actions", lambda a: a[..., :1]),
            "has 1 actions; active_dynamics.env.control has",
        ),
        (changed("observations", lambda y: y[..., :2]), "has 2 channels; noise is told from 2"),
        ({name: part[:2] for name, part in arrays().items()}, "leaves 320 of 400 transitions"),
        (spoilt("actions", (..., 1), 0.5), "has action 1 constant; vary it, or leave it out"),
    ],
)
def test_a_fault_of_a_recording_has_one_line(faulty: dict[str, np.ndarray], message: str):
    with pytest.raises(DataError) as caught:
        identify.read_recording(config_with(), "runs.npz", faulty)
    assert str(caught.value).startswith("runs.npz")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_actions_that_do_not_push_each_dimension_are_refused():
    config = config_with().model_copy()
    env = config.env.model_copy(update={"control": ((1.0, 2.0), (2.0, 4.0))})
    with pytest.raises(DataError, match="needs actions that push each dimension"):
        identify.read_recording(config.model_copy(update={"env": env}), "runs.npz", arrays())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}:Missing", "has no attribute 'Missing'; name an installed id of Gymnasium"),
        (f"{HERE}:Choices", "action_space is Discrete(3); it must be a Box with one axis"),
        (f"{HERE}:Dials", "action_space is Box(-1, 1, (2,), int8); it must hold floats"),
    ],
)
def test_a_system_that_cannot_be_used_has_one_line(name: str, message: str):
    with pytest.raises(DataError) as caught:
        make_system(name, 0)
    assert str(caught.value).startswith(name)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_registered_id_is_a_system_and_its_actions_must_be_those_of_the_config():
    system = make_system("Pendulum-v1", 0)
    assert (system.observation.shape, system.action_size) == ((1, 3), 1)
    with pytest.raises(DataError, match="an action is a vector of 2; Pendulum-v1 takes 1"):
        identify.explore(config_with(), system, "random", 0)
