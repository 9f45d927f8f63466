"""Tables from files, combinations at the edge of what is allowed; each key changes something."""

from typing import Any

import numpy as np
import pytest

from quatrain.frameworks.packing import flatten
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.seq_vae import trainer
from quatrain.models.active_dynamics.train import train as learn
from quatrain.section import NamedArray
from tests.config_keys import config_of, leaves, overlay_of, refusal, unread_keys
from tests.conftest import shapes_unchecked, small

SMALLER = "env.observation: {channels: 8}, collect: {warmup: 10, held_out_rollouts: 8, starts: 8}"
FILE = "inputs/active_dynamics/mine.npz"
AXIS = np.linspace(-2, 2, 5)
TABLE = {"axis_0": AXIS, "axis_1": AXIS[1:4] * 2, "vectors": np.arange(30.0).reshape(5, 3, 2)}
VAE = "network: {family: seq_vae}"
ENSEMBLE = "network: {family: seq_vae, seq_vae: {dynamics: ensemble, members: 3}}"
LINEAR = "network: {decoder: linear}, collect: {warmup: 1000}, train: {transitions: 2000}"
COUNTS = "env.observation: {kind: loglinear, noise: poisson}"
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


@pytest.mark.parametrize(
    "changes",
    [
        (LINEAR, "env: {control: [[0, 2, 0], [-1, 0, 0.5]]}"),
        (ENSEMBLE, "train: {arms: [random]}"),
        (ENSEMBLE, "network: {family: bayes_filter}"),
        (VAE, "env: {episode_transitions: 25}"),
        ("env: {episode_transitions: 2}",),
    ],
)
def test_a_combination_at_the_edge_is_allowed(changes: tuple[str, ...]):
    assert selected(*changes).learners >= 10
    assert hash(selected(*changes)) == hash(selected(*changes))


# Each key is read.

CHOICES = {
    "env.field.kind": ("", "env.field: {kind: duffing}"),
    "env.field.parameters": ("", "env.field: {parameters: {w: 2}}"),
    "env.field.normalise": ("", "env.field: {normalise: none}"),
    "env.field.matrix": (
        "env.field: {kind: linear, matrix: [[-1, 0], [0, -1]]}",
        "env.field: {matrix: [[-1, 0], [0, -0.9]]}",
    ),
    "env.field.table_file": (OWN_TABLE, ""),
    "env.control": ("", "env: {control: [[1], [0.5]]}"),
    "env.escape_radius": ("env.field: {speed: 0.1}", "env: {escape_radius: 1.6}"),
    "env.episode_transitions": ("", "env: {episode_transitions: 5}"),
    "env.observation.kind": ("", "env.observation: {kind: loglinear}"),
    "env.observation.noise": ("env.observation: {kind: loglinear}", COUNTS),
}
"""Key -> changes that it needs to count, and a change of it; for keys that are not numbers."""


def collected(*changes: str, **arrays: Any) -> dict[str, bytes]:
    with shapes_unchecked():
        dataset = collect(selected(SMALLER, *changes, **arrays), 0)
    return {name: array.tobytes() for name, array in flatten(dataset).items()}


def test_each_key_of_env_and_collect_changes_what_is_collected():
    changes = CHOICES.copy()
    for keys, value in leaves(selected(SMALLER)):
        name = ".".join(keys)
        if keys[0] in ("env", "collect") and name not in changes:
            larger = value + 2 if isinstance(value, int) else 1.25 * value
            changes[name] = ("", f"{'.'.join(keys[:-1])}: {{{keys[-1]}: {larger}}}")
    turned = TABLE | {"vectors": TABLE["vectors"][::-1]}
    for name, (needed, change) in changes.items():
        same = collected(needed) == collected(needed, change, **({} if change else turned))
        assert not same, name


RUNS = (
    ("train: {arms: [active, step, prbs]}",),
    (VAE, "network: {decoder: linear}, train: {arms: [active]}"),
    (ENSEMBLE, "train: {arms: [active], acquisition: {weights: {variance: 0, disagreement: 1}}}"),
)
"""Together they want every other key."""


def test_every_other_key_is_read_while_learning_or_evaluating(monkeypatch: pytest.MonkeyPatch):
    """The checks of the config itself do not count: they are done before."""
    monkeypatch.setattr(trainer, "REFRESH_EVERY", 20)
    brief = "seeds: 1, train: {transitions: 20, record_every: 10, checkpoints: 2}"
    runs = [small("active_dynamics", **overlay_of(brief, *changes)) for changes in RUNS]
    with shapes_unchecked():
        datasets = [collect(config, 0) for config in runs]
        with unread_keys(ActiveDynamicsConfig) as unread:
            for config, dataset in zip(runs, datasets, strict=True):
                *_, last = learn(config, dataset, 0)
                evaluate(config, last.state, dataset, 0)
    assert all(
        key.startswith(("Env.", "Collect.", "FieldChoice.", "Observation.")) for key in unread
    ), unread
