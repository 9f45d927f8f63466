"""A system of the user's own: its field is learned, judged, served, and faults have one line."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import quatrain
from quatrain.api.results import Result
from quatrain.envs.host.user_code import make
from quatrain.errors import DataError, QuatrainError
from quatrain.models.active_dynamics import collect, train
from quatrain.models.active_dynamics.config import ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.user_env import data, phase_plane, scores
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics import user_envs

HERE = "tests.models.active_dynamics.user_envs"
PENDULUM = {"id": "Pendulum-v1", "true_field": f"{HERE}:pendulum_field"}
CART_POLE = {
    "import": f"{HERE}:CartPole",
    "max_episode_steps": 100,
    "true_field": f"{HERE}:cart_pole_field",
}
DT = 0.05


def fit(env: dict[str, Any], **changes: Any) -> Result:
    with shapes_unchecked():
        return quatrain.fit(
            "active_dynamics",
            env={"kind": "gymnasium", **env},
            device="cpu",
            progress=False,
            **{"train": {"arms": ["active"]}, **changes},
        )


@cache
def pendulum() -> Result:
    return fit(PENDULUM)


def log(count: int = 900) -> np.ndarray:
    """Returns rows t, u, theta, omega of a pendulum that is measured with some noise."""
    draws = np.random.default_rng(0)
    angle, turn, rows = 1.0, 0.0, []
    torques = np.repeat(draws.uniform(-3, 3, count), draws.integers(5, 30, count))[:count]
    for time, torque in enumerate(torques):
        wrapped = (angle + np.pi) % (2 * np.pi) - np.pi
        rows.append([DT * time, torque, wrapped, turn + 0.01 * draws.normal()])
        for _ in range(5):
            turn += DT / 5 * (-9.8 * np.sin(angle) - turn + 2 * torque)
            angle += DT / 5 * turn
    return np.array(rows)


def write(path: Path, rows: np.ndarray, header: str = "t,u,theta,omega") -> Path:
    np.savetxt(path, rows, "%.6f", ",", header=header, comments="")
    return path


def recording(path: Path | str, **env: Any) -> dict[str, Any]:
    keys = {"actions": ["u"], "angles": ["theta"], "time": "t"}
    return {"kind": "recording", "path": str(path), **keys, **env}


def read(path: Path | str, **env: Any) -> Any:
    config = quatrain.config("active_dynamics", "gymnasium", env=recording(path, **env))
    with shapes_unchecked():
        return collect.collect(config, 0)


# What is learned.


@pytest.mark.parametrize("env", [PENDULUM, CART_POLE], ids=["pendulum", "cart-pole"])
def test_a_simulator_is_identified(env: dict[str, Any]):
    metrics = (pendulum() if env is PENDULUM else fit(env)).scores
    assert metrics["field_nrmse.active"] < 0.06
    assert metrics["prediction_r2.active"] > 0.9 > 0.7 > metrics["prediction_r2_linear_model"]
    assert 0.85 < metrics["coverage_90.active"] < 0.98
    assert metrics["nis_low.active"] < 1.05
    assert metrics["innovation_nll.active"] < metrics["innovation_nll_constant_velocity"] - 2


def test_scores_of_what_learned_nothing_are_worthless():
    result = pendulum()
    (learner,) = result.state.params
    untrained = learner.model._replace(weight=torch.zeros_like(learner.model.weight))
    paths = scores.split(result.dataset.held_out, 20)
    metrics = scores.learner_scores(result.config, untrained, result.dataset, paths)
    assert metrics["field_nrmse"] == pytest.approx(1, abs=0.2)
    assert metrics["prediction_r2"] < 0.1
    assert metrics["nis_low"] > 100


def test_a_saved_result_answers_in_the_units_of_the_system(tmp_path: Path):
    result = quatrain.load(pendulum().save(tmp_path / "saved"))
    held_out = result.dataset.held_out
    answer = result.predict({"states": held_out.obs[:50], "actions": held_out.actions[:50]})
    true = (held_out.next_obs[:50] - held_out.obs[:50]) / DT
    assert np.linalg.norm(answer["velocity"] - true) < 0.05 * np.linalg.norm(true)
    assert (answer["deviation"] > 0).all()
    pictures = result.plots()
    assert list(pictures) == ["field", "prediction", "learning_curve"]
    learned, true, _ = pictures["field"].axes
    assert [axes.get_title(loc="left") for axes in (learned, true)] == [
        "Learned from 2,000 transitions",
        "True field",
    ]
    assert learned.get_xlabel() == "angle of state 0 and state 1"
    assert result.judged_scores.keys() == {
        "innovation_nll.active",
        "prediction_r2.active",
        "coverage_90.active",
    }


def test_an_interrupted_training_goes_on_to_the_same_bits():
    changes = {
        "collect": {"warmup": 100, "held_out_transitions": 100},
        "train": {"arms": ["active", "prbs"], "transitions": 160, "record_every": 20},
        "network": {"features": 16},
    }
    env = {"kind": "gymnasium", **PENDULUM}
    config = quatrain.config("active_dynamics", "gymnasium", env=env, **changes)
    assert isinstance(config, ActiveDynamicsUserEnvConfig)
    with shapes_unchecked():
        dataset = collect.collect(config, 0)
        _, middle, last = list(train.train(config, dataset, 1))
        updated, _ = train.update(config, dataset, middle.state)
        arrays = train.to_arrays(middle.state)
        state = train.from_arrays(config, dataset, arrays)
        (again,) = list(train.train(config, dataset, 1, state))
    final, repeated = map(train.to_arrays, (last.state, again.state))
    assert all(np.array_equal(final[name], repeated[name]) for name in final)
    assert updated.transitions == middle.step + config.train.planner.replan_every


def test_actions_stay_within_the_bound_that_is_given():
    changes = {
        "collect": {"warmup": 60, "held_out_transitions": 100},
        "train": {"arms": ["active"], "transitions": 80, "record_every": 20},
        "network": {"features": 8},
    }
    result = fit({"id": "Pendulum-v1", "action_bound": 0.5}, **changes)
    largest = [
        abs(actions).max()
        for actions in (result.dataset.train.actions, result.state.replay.actions)
    ]
    assert largest == pytest.approx([0.5, 0.5], abs=0.05)


def test_an_odd_number_of_transitions_is_played():
    env = {"kind": "gymnasium", **PENDULUM}
    config = quatrain.config("active_dynamics", "gymnasium", env=env)
    with shapes_unchecked():
        runs, _ = data.play(config, 61, 0)
    assert [len(column) for column in runs] == [61] * 4
    assert runs.ends[-1]


@pytest.mark.parametrize("dt", [np.float32(0.5), True, np.inf, np.nan])
def test_the_time_step_of_an_environment_is_any_finite_number(
    dt: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(user_envs.CartPole, "dt", dt)
    env = {"kind": "gymnasium", **CART_POLE}
    config = quatrain.config("active_dynamics", "gymnasium", env=env)
    if isinstance(dt, np.float32):
        assert data.time_step(config.env) == 0.5
    else:
        with pytest.raises(DataError, match="has no finite dt above 0; set"):
            data.time_step(config.env)


def test_the_field_is_drawn_over_an_angle_and_its_velocity():
    train_runs = pendulum().dataset.train
    order = [2, 0, 1]
    y, next_y = (part[:, order].astype(float) for part in (train_runs.obs, train_runs.next_obs))
    plane = phase_plane.make_plane(y, (next_y - y) / DT, ["turn", "cos theta", "sin theta"])
    assert plane.shown == [
        phase_plane.Coordinate("theta", (1, 2)),
        phase_plane.Coordinate("turn", (0,)),
    ]

    def field(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        turn, cos, sin = states.T
        return np.stack([9 * sin, -turn * sin, turn * cos], 1), np.full(states.shape, 0.5)

    speeds, deviations = plane.flow(field)
    angle, turn = np.meshgrid(*plane.ticks, indexing="ij")
    np.testing.assert_allclose(speeds, [turn, 9 * np.sin(angle)], atol=1e-12)
    np.testing.assert_allclose(deviations, 0.5)


def test_the_field_of_one_state_is_a_line():
    y = np.linspace(-1, 2, 30)[:, None]
    plane = phase_plane.make_plane(y, -y, ["x"])
    picture = phase_plane.draw(plane, {"Learned": lambda states: (-states, 0 * states)})
    (axes,) = picture.axes
    (line,) = axes.lines
    np.testing.assert_allclose(line.get_ydata(), -line.get_xdata())
    assert axes.get_ylabel() == "velocity of x"


# Recordings.


def swing(y: np.ndarray) -> np.ndarray:
    """Returns the field of the pendulum that `log` records."""
    cosine, sine, turn = y.T
    return np.stack([-turn * sine, turn * cosine, -9.8 * sine - turn], 1)


def test_a_recorded_pendulum_is_identified_and_its_known_control_may_be_given(tmp_path: Path):
    path = write(tmp_path / "run.csv", log())
    for control in (None, [[0], [0], [2]]):
        result = fit(recording(path, control=control, true_field=swing))
        metrics = result.scores
        assert metrics["prediction_r2.recorded"] > 0.97
        assert metrics["field_nrmse.recorded"] < 0.3
        assert 0.8 < metrics["coverage_90.recorded"] < 0.98
        assert metrics["nis_low.recorded"] < 1 < metrics["nis_high.recorded"]
    labels = [axes.get_ylabel() for axes in result.plots()["prediction"].axes]
    assert labels == ["cos theta", "sin theta", "omega"]
    with pytest.raises(DataError, match="is a recording, of which no seed draws other held-out"):
        quatrain.evaluate(result, seed=3)


def test_runs_end_at_a_border_of_runs_and_of_files(tmp_path: Path):
    rows = log(150)
    numbered = np.column_stack([rows, np.arange(150) >= 90])
    write(tmp_path / "one.csv", numbered, "t,u,theta,omega,run")
    by_column = read(tmp_path / "one.csv", run="run").train
    write(tmp_path / "part_0.csv", rows[:90])
    write(tmp_path / "part_1.csv", rows[90:])
    by_file = read(tmp_path / "part_*.csv").train
    for train_runs in (by_column, by_file):
        assert train_runs.ends.nonzero()[0].tolist() == [88, len(train_runs.ends) - 1]
        assert train_runs.obs[89] == pytest.approx(
            [np.cos(rows[90, 2]), np.sin(rows[90, 2]), rows[90, 3]], abs=1e-5
        )


def test_files_have_the_same_columns(tmp_path: Path):
    write(tmp_path / "part_0.csv", log(90))
    write(tmp_path / "part_1.csv", log(90), "t,u,omega,theta")
    with pytest.raises(DataError, match="files have different columns; make them equal"):
        read(tmp_path / "part_*.csv")


def test_arrays_hold_runs_of_unequal_length(tmp_path: Path):
    rows = log(150)
    path = tmp_path / "runs.npz"
    np.savez(path, observations=rows[:, 2:], actions=rows[:, 1:2], episode=np.arange(150) >= 90)
    dataset = read(path, actions=[], angles=[], time=None, dt=DT)
    assert dataset.train.ends.nonzero()[0].tolist() == [88, len(dataset.train.ends) - 1]
    np.testing.assert_allclose(dataset.train.obs[89:91], rows[90:92, 2:], rtol=1e-6)
    assert float(dataset.dt) == DT
    assert dataset.state_names == ["observations 0", "observations 1"]


@pytest.mark.parametrize("wrap", [2 * np.pi, np.inf])
def test_angles_in_radians_may_turn_fast(tmp_path: Path, wrap: float):
    rows = log(150)
    rows[:, 2] = 30 * rows[:, 0]
    if np.isfinite(wrap):
        rows[:, 2] %= wrap
    dataset = read(write(tmp_path / "run.csv", rows))
    assert dataset.state_names == ["cos theta", "sin theta", "omega"]


# Faults.


def test_no_environment_is_made_of_a_recording():
    config = quatrain.config("active_dynamics", "gymnasium", env=recording("run.csv"))
    with pytest.raises(DataError, match=r"run\.csv is a recording, .* the form of example_request"):
        make(config.env)


def turning() -> np.ndarray:
    rows = log(150)
    rows[:, 2] = (rows[:, 0] * np.linspace(9, 10, 150) + np.pi) % (2 * np.pi) - np.pi
    return rows


def swinging(largest: float) -> np.ndarray:
    rows = log(150)
    rows[:, 2] = largest * np.sin(2 * rows[:, 0])
    return rows


def spoilt(row: int, column: int, value: float) -> np.ndarray:
    rows = log(150)
    rows[row, column] = value
    return rows


@pytest.mark.parametrize(
    ("rows", "env", "message"),
    [
        (log(150), {"actions": ["v"]}, "has no 'v'; it has t, u, theta, omega"),
        (log(150), {"run": "trail"}, "has no 'trail'; it has t, u, theta, omega"),
        (log(150), {"time": "tim"}, "has no 'tim'; it has t, u, theta, omega"),
        (log(150), {"angles": ["phi"]}, "angle 'phi' is no state; these are ('theta', 'omega')"),
        (log(150), {"time": None, "dt": 0.1}, "t changes evenly in almost each row, as time"),
        (log(150), {"time": None, "states": ["omega"], "angles": []}, "set active_dynamics.env.dt"),
        (turning(), {"angles": []}, "theta jumps by about 2 pi at row 9: an angle; list it in"),
        (turning() * [1, 1, 180 / np.pi, 1], {}, "theta goes from -178.576 to 178.852, as degrees"),
        (turning() * [1, 1, 180 / np.pi, 1], {"angles": []}, "theta jumps by about 360 at row 9"),
        (swinging(60), {}, "theta turns by more than pi/2 from 82% of the rows to the next; write"),
        (spoilt(3, 3, np.nan), {}, "omega is nan in row 5; 1 of 150 rows cannot be used: leave"),
        (spoilt(9, 0, 7), {}, "t goes on by 6.6 at row 11, mostly by 0.05; record in even steps"),
        (log(40), {}, "leaves 31 of 39 transitions to learn from, which takes 64"),
        (log(150), {"actions": []}, "theta, omega: name the columns of actions in active_dynamics"),
    ],
)
def test_a_fault_of_a_table_has_one_line(
    tmp_path: Path, rows: np.ndarray, env: dict[str, Any], message: str
):
    path = write(tmp_path / "run.csv", rows)
    with pytest.raises(DataError) as caught:
        read(path, **env)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_arrays_need_one_row_each(tmp_path: Path):
    path = tmp_path / "run.npz"
    np.savez(path, observations=np.zeros((9, 2)) + np.eye(9, 2), actions=np.zeros((8, 1)))
    with pytest.raises(DataError, match="observations has 9 rows, and not 8 as the other"):
        read(path, actions=[], angles=[], time=None, dt=DT)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"kind": "recording"}, "kind: recording and path go together"),
        (recording("run.csv", dt=0.1), "dt 0.1 and time 't' both tell the time of a transition"),
        (recording("run.csv", states=["u", "theta"]), "states, time and run: 'u' is there twice"),
        (recording("run.csv", states=["theta", "theta"]), "'theta' is there twice; name each once"),
        (recording("run.csv", angles=["theta", "theta"]), "angles: 'theta' is there twice; name"),
        (recording("run.csv", id="Pendulum-v1"), "id has no effect with kind: recording; leave it"),
        (recording("run.csv", wrappers=["a:B"]), "wrappers has no effect with kind: recording"),
        (recording("run.csv", vectorization="async"), 'leave it out (vectorization: "sync")'),
        (recording("run.csv", action_bound=2), "action_bound has no effect with kind: recording"),
        (
            {"actions": ["u"]},
            "actions has no effect with kind: gymnasium; leave it out (actions: []",
        ),
        (recording("missing.csv"), "missing.csv is not there; a relative path starts in"),
        ({"dt": 0}, "active_dynamics.env.dt = 0: Input should be greater than 0"),
        (
            {"control": [[1.0]]},
            "has 3 states and 1 actions; active_dynamics.env.control has 1 rows",
        ),
        ({"true_field": f"{HERE}:flat_field"}, "returned (5,) for states (5, 3), or numbers"),
        ({"true_field": f"{HERE}:missing"}, "has no missing; mend its name; it is a"),
        ({"import": f"{HERE}:Timeless", "max_episode_steps": 9}, "has no finite dt above 0"),
        (
            {"import": f"{HERE}:Choices", "max_episode_steps": 9, "dt": 0.1},
            "actions are not continuous, so no effect B(x) a of theirs can be learned; wrap",
        ),
        (
            {"import": f"{HERE}:Pixels", "max_episode_steps": 9},
            "an observation has 216 numbers, such as an image; active_dynamics takes at most 64",
        ),
    ],
)
def test_what_cannot_be_a_system_has_one_line(env: dict[str, Any], message: str):
    changes = {
        "collect": {"warmup": 60, "held_out_transitions": 100},
        "train": {"arms": ["random"], "transitions": 80, "record_every": 20},
        "network": {"features": 8},
    }
    records: list[Any] = []
    with pytest.raises(QuatrainError) as caught:
        fit(env, callback=records.append, **changes)
    assert not records  # nothing was learned
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
