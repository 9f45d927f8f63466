"""Combinations of the section active_dynamics that are refused; each key changes something."""

import re
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from pipeline.runtime.errors import ConfigError
from pipeline.storage.artifacts import to_arrays
from pipeline.storage.params_file import overlaid, parse, validate
from quatrain.models.active_dynamics import config as configs
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.train import train as learn
from quatrain.section import NamedArray, Section
from tests.config_keys import leaves, nested
from tests.conftest import ROOT, shapes_unchecked, small

RAW = parse(ROOT / "params.yaml")
SMALLER = "env.observation: {channels: 8}, collect: {warmup: 10, held_out_rollouts: 8, starts: 8}"
FILE = "inputs/active_dynamics/mine.npz"
AXIS = np.linspace(-2, 2, 5)
TABLE = {"axis_0": AXIS, "axis_1": AXIS[1:4] * 2, "vectors": np.arange(30.0).reshape(5, 3, 2)}
VAE = "network: {family: seq_vae}"
ENSEMBLE = "network: {family: seq_vae, seq_vae: {dynamics: ensemble, members: 3}}"
LINEAR = "network: {decoder: linear}, collect: {warmup: 1000}, train: {transitions: 2000}"
COUNTS = "env.observation: {kind: loglinear, noise: poisson}"
OWN_TABLE = f"env.field: {{kind: table, table_file: {FILE}}}"


def overlay_of(*changes: str) -> dict[str, Any]:
    """Returns the overlay of changes such as `env.field: {kind: duffing}, seeds: 3`."""
    overlay: dict[str, Any] = {}
    for part in changes:
        for keys, values in YAML(typ="safe").load(f"{{{part}}}").items():
            overlay = overlaid(overlay, nested(tuple(keys.split(".")), values))
    return overlay


def selected(*changes: str, **arrays: Any) -> ActiveDynamicsConfig:
    content = tuple(
        NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        for name, array in (arrays or TABLE).items()
    )
    raw = overlaid(RAW, {"active_dynamics": overlay_of(*changes)})
    return validate(raw, {FILE: content}.__getitem__).active_dynamics


def refusal(*changes: str, **arrays: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        selected(*changes, **arrays)
    assert "\n" not in str(caught.value)
    return str(caught.value)


REFUSED = """
env.field: {parameters: {mu: 1}}
    env.field: parameters: 'mu' is no parameter of kind limit_cycle; it has: w, d
env.field: {kind: linear, matrix: [[-1, -1], [1, -1]], parameters: {w: 1}}
    env.field: parameters: 'w' is no parameter of kind linear; it has: none
env.field: {kind: multi_attractor, parameters: {length: 0}}
    env.field: parameters: length 0 must be above 0
env.field: {kind: multi_attractor, parameters: {nodes: 40.5}}
    env.field: parameters: nodes 40.5 must be a whole number from 2 to 1000
env.field: {kind: multi_attractor, parameters: {nodes: 1001}}
    env.field: parameters: nodes 1001 must be a whole number from 2 to 1000
env.field: {kind: linear}
    env.field: kind: linear and matrix go together; set both, or matrix: null
env.field: {kind: linear, matrix: [[1, 0]]}
    env.field: matrix is not square: give as many rows as columns
env.field: {table_file: inputs/active_dynamics/mine.npz}
    env.field: kind: table and table_file go together; set both, or table_file: null
env.field: {kind: table, table_file: inputs/active_dynamics/wind.csv}
    inputs/active_dynamics/wind.csv is no .npz file; write one with numpy.savez
env: {control: [[1, 0]]}
    env: control has rows of [2]; give 2 of one length
env: {control: [[1, 0], [1]]}
    env: control has rows of [2, 1]; give 2 of one length
env.observation: {kind: identity}
    env: observation.channels 50 with kind: identity: the state has 2; set 2
env.observation: {channels: 1}
    env: observation.channels 1 is below the state's 2 dimensions; raise it
env.observation: {noise: poisson}
    noise: poisson needs rates, and kind: linear may be negative; set kind: loglinear
env: {region_radius: 3}
    env: escape_radius 3 must be above 3: region_radius, and where episodes start
env: {region_radius: 0.5, escape_radius: 1}
    env: escape_radius 1 must be above 1: region_radius, and where episodes start
network: {rbf: {length: 0.1}}
    network.rbf: length 0.1 is below 0.125, a quarter of the centres' distance; raise it
env.field: {kind: linear, matrix: [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}, network.rbf: {side: 11}
    network.rbf.side 11 makes 1,331 centres in 3 dimensions; at most 1024, in at most 3 dimensions
env.field: {kind: linear, matrix: [&row [1, 0, 0, 0], *row, *row, *row]}, network.rbf: {side: 4}
    network.rbf.side 4 makes 256 centres in 4 dimensions
env.field: {kind: linear, matrix: [[1, 0, 0], [0, 1, 0], [0, 0, 1]]}, network.rbf: {side: 10}
    network.rbf.side 10 makes a filter of 3,003 numbers; at most 2,048; lower it
network.seq_vae: {members: 3}
    network.seq_vae: members 3 with dynamics: rbf; set dynamics: ensemble, or 1
network: {decoder: mlp}
    network: decoder: mlp is learned by seq_vae alone; set known or linear
network: {family: seq_vae, decoder: mlp}, env.observation: {kind: loglinear, noise: poisson}
    network.decoder: mlp gives no rates for noise: poisson; set known or loglinear
network: {decoder: linear}, collect: {warmup: 1000}, env.observation: {kind: loglinear}
    linear of bayes_filter cannot learn env.observation.kind: loglinear; set decoder: known
network: {decoder: linear}, collect: {warmup: 1000}, env.observation: {channels: 2}
    linear tells noise by what is left of 2 channels; raise env.observation.channels
network: {decoder: linear}, collect: {warmup: 1000}, env: {control: [[1, 2], [2, 4]]}
    linear needs actions that push each dimension; give env.control rank 2, or null
network: {decoder: linear}, collect: {warmup: 999}
    network.decoder: linear is learned from collect.warmup 999; set at least 1000
train.acquisition.weights: {varience: 1}
    weights: 'varience' is unknown; known: variance, information, fisher_d, fisher_a, disagreement,
train.acquisition.weights: {variance: 0}
    train.acquisition: all weights are 0: nothing is looked for; give one value a weight
train.acquisition.weights: {disagreement: 1}, network.seq_vae: {dynamics: ensemble, members: 3}
    weights.disagreement needs network.family: seq_vae with dynamics: ensemble and several members;
train.acquisition.weights: {disagreement: 1},
network: {family: seq_vae, seq_vae: {dynamics: ensemble}}
    weights.disagreement needs network.family: seq_vae with dynamics: ensemble and several members;
network: {family: seq_vae, seq_vae: {dynamics: ensemble, members: 3}}
    weights.variance needs a posterior, which an ensemble does not have; weigh disagreement
train.planner: {elites: 32}
    train.planner: keep 2 <= elites 32 < candidates 32 does not hold; mend one
train.planner: {keep: 7}
    train.planner: keep 7 <= elites 6 < candidates 32 does not hold; mend one
train.planner: {keep: 31, elites: 31}
    keep 31 and the mean are all of candidates 32: none is drawn; lower keep
train.planner: {replan_every: 3}
    replan_every 3 must be a multiple of hold 2, and at most horizon * hold 20
train.planner: {replan_every: 22}
    replan_every 22 must be a multiple of hold 2, and at most horizon * hold 20
train.policies: {prbs_hold: [19, 3]}
    train.policies: prbs_hold [19, 3] is no range; put the lesser first
train: {arms: [active, random, active]}
    train.arms = ['active', 'random', 'active']: an arm is named twice; name each once
train: {transitions: 30, checkpoints: 31}
    train: checkpoints 31 exceeds transitions 30; lower it
train.seq_vae: {horizons: 20}
    train.seq_vae: horizons 20 is not below window 20; lower it
collect: {warmup: 1000}
    collect.warmup 1000 leaves nothing of train.transitions 1000; lower it
env: {episode_transitions: 1}
    train.planner.replan_every 2 exceeds env.episode_transitions 1: episodes would end before
network: {family: seq_vae}, train: {transitions: 40}
    train.seq_vae: window + burn_in 25 and min_windows 16 exceed train.transitions 40: nothing
network: {family: seq_vae}, env: {episode_transitions: 24}
    train.seq_vae: window + burn_in 25 exceeds env.episode_transitions 24: nothing would be learned
train: {transitions: 10000000}, seeds: 1024
    train.transitions * env.observation.channels takes about 11444 GiB; at most 64; lower one
network.rbf: {side: 31}, seeds: 1024
    learners * (network.rbf.side ** d * d) ** 2 takes about 169 GiB; at most 64; lower one
train.planner: {candidates: 65536, horizon: 256}
    seeds * train.planner.candidates * horizon takes about 202 GiB; at most 64; lower one
collect: {held_out_rollouts: 65536}, env.observation: {channels: 4096}
    collect.held_out_rollouts of env.observation.channels takes about 202 GiB; at most 64
"""
"""Changes of params.yaml, each followed by a part of its error message."""
CASES = re.findall(r"((?:^\S.*\n)+) {4}(.*)$", REFUSED, re.M)


@pytest.mark.parametrize(("changes", "message"), CASES)
def test_a_combination_is_refused_with_its_reason(changes: str, message: str):
    actual = refusal(changes)
    assert actual.startswith("params.yaml: active_dynamics")
    assert message in actual


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
    assert expected in refusal(OWN_TABLE, **arrays)


# What is allowed.


def test_a_table_file_stands_in_the_config_with_its_arrays():
    table = selected(OWN_TABLE).env.world.field.table
    assert table is not None
    assert (table.name, table.axes) == ("mine.npz", ((-2, -1, 0, 1, 2), (-2, 0, 2)))
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
    return {name: array.tobytes() for name, array in to_arrays(dataset).items()}


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
    ("train: {arms: [active, random], planner: {kind: mppi}}",),
    (VAE, "train: {arms: [active]}"),
    (ENSEMBLE, "train: {arms: [active], acquisition: {weights: {variance: 0, disagreement: 1}}}"),
)
"""Together they want every other key."""


def test_every_other_key_is_read_while_learning_or_evaluating(monkeypatch: pytest.MonkeyPatch):
    """The checks of the config itself do not count: they are done before."""
    brief = "seeds: 1, train: {transitions: 20, record_every: 10, checkpoints: 2}"
    runs = [small("active_dynamics", **overlay_of(brief, *changes)) for changes in RUNS]
    sections = [
        part
        for part in vars(configs).values()
        if isinstance(part, type)
        and issubclass(part, Section)
        and part.__module__ == configs.__name__
        and part is not configs.Collect
    ]
    read: set[tuple[str, str]] = set()

    def get(section: BaseModel, name: str) -> Any:
        read.add((type(section).__name__, name))
        return object.__getattribute__(section, name)

    with shapes_unchecked():
        datasets = [collect(config, 0) for config in runs]
        for part in sections:
            monkeypatch.setattr(part, "__getattribute__", get, raising=False)
        for config, dataset in zip(runs, datasets, strict=True):
            *_, last = learn(config, dataset, 0)
            evaluate(config, last.state, dataset, 0)
    expected = {(part.__name__, name) for part in sections for name in part.model_fields}
    assert expected - read == set()
