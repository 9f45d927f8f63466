"""A recording of the same system passes; other units, a shifted sensor or another system do not."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pipeline.judging import drift
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Capture

WARNING = "the recording differs in velocity from that of the model in here; see the table"


def recorded(seed: int, rows: int = 1500, stiffness: float = 9.0) -> drift.Channels:
    """Returns a damped spring that a held force pushes."""
    draws = np.random.default_rng(seed)
    forces = np.repeat(draws.uniform(-3, 3, rows), draws.integers(5, 30, rows))[:rows]
    place, velocity, path = 1.0, 0.0, []
    for force in forces:
        path.append([place, velocity, force])
        velocity += 0.05 * (force - stiffness * place - velocity)
        place += 0.05 * velocity
    columns = np.array(path, np.float32).T
    return dict(zip(("place", "velocity", "force"), columns, strict=True))


def differing(learned: drift.Channels, channels: drift.Channels) -> list[str]:
    rows = drift.rows_of(drift.quantiles_of(learned), channels)
    return [row.cells[0] for row in rows if row.differs]


def changed(change: Callable[[np.ndarray], np.ndarray]) -> drift.Channels:
    return recorded(1) | {"velocity": change(recorded(1)["velocity"])}


@pytest.mark.parametrize("seed", range(8))
def test_another_seed_and_the_other_half_of_a_recording_do_not_differ(seed: int):
    whole = recorded(seed)
    halves = [{name: part[rows] for name, part in whole.items()} for rows in HALVES]
    assert differing(*halves) == []
    assert differing(whole, recorded(seed + 100)) == []


HALVES = (slice(750), slice(750, None))


@pytest.mark.parametrize(
    "change",
    [lambda v: v * 10, lambda v: v / 10, lambda v: v + 2 * v.std(), lambda v: np.full_like(v, 0.1)],
    ids=["units", "finer units", "a shifted sensor", "a stuck sensor"],
)
def test_a_changed_channel_differs_by_its_name(change: Callable[[np.ndarray], np.ndarray]):
    assert differing(recorded(0), changed(change)) == ["velocity"]


def test_another_system_and_other_channels_differ():
    assert "place" in differing(recorded(0), recorded(1, stiffness=1.0))
    renamed = {f"{name}_2": values for name, values in recorded(1).items()}
    assert differing(recorded(0), renamed) == [*recorded(0), *renamed]


def test_quantiles_are_numbers_of_the_recording_so_that_two_values_stay_two():
    binary = np.tile(np.float32([-1 / 3, 1 / 3]), 400)
    quantiles = drift.quantiles_of({"u": binary})["u"]
    assert {*np.float32(quantiles)} == {*binary}
    assert differing({"u": binary}, {"u": binary[:300]}) == []


def test_a_difference_warns_or_is_refused_and_no_model_is_said(capsys: Capture):
    learned = drift.quantiles_of(recorded(0))
    drift.check("here", None, recorded(0), "refuse")
    assert "no model of a recording in here: nothing to compare it with" in capsys.readouterr().out
    drift.check("here", learned, recorded(1), "refuse")
    assert capsys.readouterr().err == ""
    drift.check("here", learned, changed(lambda v: v * 10), "warn")
    assert f"warning: {WARNING}" in capsys.readouterr().err
    with pytest.raises(DataError, match=WARNING):
        drift.check("here", learned, changed(lambda v: v * 10), "refuse")


STATES = {
    "table/observations": np.float32([[1, 2], [3, 4], [5, 6]]),
    "train/state": np.array([2, 0, 0, 1]),
}
RUNS = {
    "names": np.frombuffer(b"x\ny", np.uint8),
    "train/obs": np.float32([[1, 2], [3, 4]]),
    "train/actions": np.float32([[7], [8]]),
}


@pytest.mark.parametrize(
    ("arrays", "env", "channels"),
    [
        (STATES, {"columns": ("p", "q")}, {"p": [5, 1, 1, 3], "q": [6, 2, 2, 4]}),
        (RUNS, {"actions": ()}, {"x": [1, 3], "y": [2, 4], "action 0": [7, 8]}),
        (RUNS, {"actions": ("u",)}, {"x": [1, 3], "y": [2, 4], "u": [7, 8]}),
    ],
)
def test_channels_have_the_names_of_columns(
    arrays: dict[str, np.ndarray], env: dict[str, Any], channels: dict[str, list[float]]
):
    config = SimpleNamespace(is_recorded=True, env=SimpleNamespace(**env))
    result = drift.channels_of(config, arrays)
    assert {name: values.tolist() for name, values in result.items()} == channels
    config.is_recorded = False
    assert drift.channels_of(config, arrays) == {}
