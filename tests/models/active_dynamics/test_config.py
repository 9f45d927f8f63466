"""Tables from files, combinations at the edge of what is allowed; each key changes something."""

from typing import Any

import numpy as np
import pytest

from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.seq_vae import trainer
from quatrain.models.active_dynamics.train import train as learn
from quatrain.section import NamedArray
from tests.config_keys import config_of, overlay_of, refusal, unread_keys
from tests.conftest import shapes_unchecked, small

FILE, WIND = "inputs/active_dynamics/mine.npz", "inputs/active_dynamics/wind.npz"
AXIS = np.linspace(-2, 2, 5)
TABLE = {"axis_0": AXIS, "axis_1": AXIS[1:4] * 2, "vectors": np.arange(30.0).reshape(5, 3, 2)}
VAE = "network: {family: seq_vae}"
ENSEMBLE = "network: {family: seq_vae, seq_vae: {dynamics: ensemble, members: 3}}"
OWN_TABLE = f"env.field: {{kind: table, table_file: {FILE}}}"


def file_of(arrays: dict[str, Any]) -> dict[str, Any]:
    """Returns the input file of these arrays."""
    content = tuple(
        NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        for name, array in arrays.items()
    )
    return {FILE: content}


def selected(*changes: str, **arrays: Any) -> ActiveDynamicsConfig:
    return config_of("active_dynamics", *changes, files=file_of(arrays or TABLE))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"axis_0": AXIS}, "holds axis_0; numpy.savez it with exactly axis_0, axis_1, vectors"),
        (
            TABLE | {"axis_1": np.ones((5, 3))},
            "axis_1 has 2 axes, expected one: the coordinates of the nodes",
        ),
    ],
)
def test_a_table_of_other_arrays_is_refused(arrays: dict[str, Any], message: str):
    expected = f"active_dynamics.env.field.table_file = '{FILE}': {message}"
    assert expected in refusal("active_dynamics", OWN_TABLE, files=file_of(arrays))


# What is allowed.


def test_a_table_file_stands_in_the_config_with_its_arrays():
    table = selected(OWN_TABLE).env.field.table
    assert table is not None
    assert table.name == "mine.npz"
    assert [axis.tolist() for axis in table.axes] == [[-2, -1, 0, 1, 2], [-2, 0, 2]]
    np.testing.assert_array_equal(table.vectors, TABLE["vectors"])


# Each key is read.


RUNS = (
    (f"env.field: {{kind: table, table_file: {WIND}}}", "train: {arms: [active, step, prbs]}"),
    (VAE, "network: {decoder: linear}, train: {arms: [active]}"),
    (ENSEMBLE, "train: {arms: [active], acquisition: {weights: {variance: 0, disagreement: 1}}}"),
)
"""Together they want every key."""


def test_every_key_is_read_by_what_runs(monkeypatch: pytest.MonkeyPatch):
    """The checks of the config itself do not count: they are done before."""
    monkeypatch.setattr(trainer, "REFRESH_EVERY", 20)
    brief = "seeds: 1, train: {transitions: 20, record_every: 10, checkpoints: 2}"
    runs = [small("active_dynamics", **overlay_of(brief, *changes)) for changes in RUNS]
    with shapes_unchecked(), unread_keys(ActiveDynamicsConfig) as unread:
        for config in runs:
            dataset = collect(config, 0)
            *_, last = learn(config, dataset, 0)
            evaluate(config, last.state, dataset, 0)
    assert unread == set()
