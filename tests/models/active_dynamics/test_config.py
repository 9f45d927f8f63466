"""Values of the section active_dynamics that cannot be used, one by one or together: each ends in
one line that says what to do. And of those that can be, each changes something.
"""

import re
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from pipeline.runtime.errors import ConfigError
from pipeline.storage.artifacts import to_arrays
from pipeline.storage.params_file import overlaid, parse, read_params, validate
from quatrain.envs.vector_field import kinds
from quatrain.envs.vector_field.kinds import KINDS
from quatrain.models.active_dynamics import config as room
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.evaluate import evaluate
from quatrain.models.active_dynamics.train import train as learn
from quatrain.section import NamedArray, Section
from tests.config_keys import leaves, nested
from tests.conftest import ROOT, SMALL, params_with, small

RAW = parse(ROOT / "params.yaml")
FILE = "inputs/active_dynamics/mine.npz"
AXIS = np.linspace(-2, 2, 5)
TABLE = {"axis_0": AXIS, "axis_1": AXIS[1:4] * 2, "vectors": np.arange(30.0).reshape(5, 3, 2)}
ROTATION = [[-0.5, -1.0], [1.0, -0.5]]


def env(**changes: Any) -> dict[str, Any]:
    return {"env": changes}


def field(**changes: Any) -> dict[str, Any]:
    return env(field=changes)


def observed(**changes: Any) -> dict[str, Any]:
    return env(observation=changes)


def collected(**changes: Any) -> dict[str, Any]:
    return {"collect": changes}


def network(**changes: Any) -> dict[str, Any]:
    return {"network": changes}


def train(**changes: Any) -> dict[str, Any]:
    return {"train": changes}


def planner(**changes: Any) -> dict[str, Any]:
    return train(planner=changes)


def policies(**changes: Any) -> dict[str, Any]:
    return train(policies=changes)


def windows(**changes: Any) -> dict[str, Any]:
    return train(seq_vae=changes)


def weights(**changes: float) -> dict[str, Any]:
    return train(acquisition={"weights": changes})


def together(*overlays: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for overlay in overlays:
        result = overlaid(result, overlay)
    return result


VAE = network(family="seq_vae")
LINEAR = together(network(decoder="linear"), collected(warmup=1000), train(transitions=2000))
COUNTS = observed(kind="loglinear", noise="poisson")
ENSEMBLE = network(family="seq_vae", seq_vae={"dynamics": "ensemble", "members": 3})
OWN_TABLE = field(kind="table", table_file=FILE)


def selected(overlay: dict[str, Any], **arrays: Any) -> ActiveDynamicsConfig:
    content = tuple(
        NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
        for name, array in (arrays or TABLE).items()
    )
    return validate(
        overlaid(RAW, {"active_dynamics": overlay}), {FILE: content}.__getitem__
    ).active_dynamics


def refusal(overlay: dict[str, Any], **arrays: Any) -> str:
    """The line that a user reads."""
    with pytest.raises(ConfigError) as caught:
        selected(overlay, **arrays)
    assert "\n" not in str(caught.value)
    return str(caught.value)


FIELDS = {
    "an unknown field": (
        field(kind="limitcycle"),
        "active_dynamics.env.field.kind = 'limitcycle': 'limitcycle' is unknown: did you mean "
        "'limit_cycle'? Known: "
        "limit_cycle, double_limit_cycle, van_der_pol, duffing, snowman, multi_attractor, linear, "
        "table",
    ),
    "a number of another field": (
        field(parameters={"mu": 1.0}),
        "active_dynamics.env.field: parameters: 'mu' is no parameter of kind limit_cycle; it has: "
        "w, d",
    ),
    "a number of a matrix": (
        field(kind="linear", matrix=ROTATION, parameters={"w": 1.0}),
        "active_dynamics.env.field: parameters: 'w' is no parameter of kind linear; it has: none",
    ),
    "a number that is none": (
        field(parameters={"w": float("nan")}),
        "active_dynamics.env.field.parameters.w = nan: ",
    ),
    "a number beyond sums": (
        field(parameters={"w": 2e6}),
        "active_dynamics.env.field.parameters.w = 2000000.0: ",
    ),
    "a draw of no length": (
        field(kind="multi_attractor", parameters={"length": 0.0}),
        "active_dynamics.env.field: parameters: length 0 must be above 0",
    ),
    "a draw of negative variance": (
        field(kind="multi_attractor", parameters={"variance": -1.0}),
        "active_dynamics.env.field: parameters: variance -1 must be above 0",
    ),
    "a draw on one node": (
        field(kind="multi_attractor", parameters={"nodes": 1}),
        "active_dynamics.env.field: parameters: nodes 1 must be a whole number from 2 to 1000",
    ),
    "a draw on half nodes": (
        field(kind="multi_attractor", parameters={"nodes": 40.5}),
        "parameters: nodes 40.5 must be a whole number from 2 to 1000",
    ),
    "a draw beyond memory": (
        field(kind="multi_attractor", parameters={"nodes": 1e5}),
        "parameters: nodes 100000 must",
    ),
    "a linear field without a matrix": (
        field(kind="linear"),
        "active_dynamics.env.field: kind: linear and matrix go together; set both, or matrix: null",
    ),
    "a matrix without its kind": (
        field(matrix=ROTATION),
        "kind: linear and matrix go together; set both, or matrix: n",
    ),
    "a matrix that is not square": (
        field(kind="linear", matrix=[[1.0, 0.0], [1.0]]),
        "active_dynamics.env.field: matrix is not square: give as many rows as columns",
    ),
    "a wide matrix": (
        field(kind="linear", matrix=[[1.0, 0.0]]),
        "matrix is not square: give as many rows as columns",
    ),
    "no matrix at all": (
        field(kind="linear", matrix=[]),
        "active_dynamics.env.field.matrix = []: ",
    ),
    "a word in a matrix": (
        field(kind="linear", matrix=[["a"]]),
        "active_dynamics.env.field.matrix",
    ),
    "a table without a file": (
        field(kind="table"),
        "active_dynamics.env.field: kind: table and table_file go together; set both, or "
        "table_file: null",
    ),
    "a file without its kind": (
        field(table_file=FILE),
        "kind: table and table_file go together; set both, or table_f",
    ),
    "a text as table": (
        field(kind="table", table_file="inputs/active_dynamics/wind.csv"),
        "active_dynamics.env.field.table_file = 'inputs/active_dynamics/wind.csv': "
        "inputs/active_dynamics/wind.csv is "
        "no .npz file; write one with numpy.savez",
    ),
    "an unknown norm": (
        field(normalise="rms"),
        "active_dynamics.env.field.normalise = 'rms': Input should be 'region_rms', 'box_max' or "
        "'none'",
    ),
}

WORLDS = {
    "control of another dimension": (
        env(control=[[1.0, 0.0]]),
        "active_dynamics.env: control has rows of [2]; give 2 of one length",
    ),
    "control that is ragged": (
        env(control=[[1.0, 0.0], [1.0]]),
        "active_dynamics.env: control has rows of [2, 1]; give 2 of one length",
    ),
    "no control": (env(control=[[], []]), "active_dynamics.env.control"),
    "channels that are not the state": (
        observed(kind="identity"),
        "active_dynamics.env: observation.channels 50 with kind: identity: the state has 2; set 2",
    ),
    "fewer channels than dimensions": (
        observed(channels=1),
        "active_dynamics.env: observation.channels 1 is below the state's 2 dimensions; raise it",
    ),
    "counts that may be negative": (
        observed(noise="poisson"),
        "active_dynamics.env.observation: noise: poisson needs rates, and kind: linear may be "
        "negative; set kind: "
        "loglinear",
    ),
    "counts of the state": (
        observed(kind="identity", channels=2, noise="poisson"),
        "noise: poisson needs rates, and kind: identity may be negative; set kind: loglinear",
    ),
    "no way out of the region": (
        env(region_radius=3.0),
        "active_dynamics.env: escape_radius 3 must be above 3: region_radius, and where episodes "
        "start",
    ),
    "starts beyond the end": (
        env(region_radius=0.5, escape_radius=1.0),
        "active_dynamics.env: escape_radius 1 must be above 1: region_radius, and where episodes "
        "start",
    ),
}

LEARNERS = {
    "centres that no one can tell apart": (
        network(rbf={"side": 32}),
        "active_dynamics.network.rbf.side = 32: Input should be less than or equal to 31",
    ),
    "gaps between centres": (
        network(rbf={"length": 0.1}),
        "active_dynamics.network.rbf: length 0.1 is below 0.125, a quarter of the centres' "
        "distance; raise it",
    ),
    "too many centres": (
        together(field(kind="linear", matrix=np.eye(3).tolist()), network(rbf={"side": 11})),
        "active_dynamics: network.rbf.side 11 makes 1,331 centres in 3 dimensions; at most 1024, "
        "in at most 3 "
        "dimensions; lower it",
    ),
    "too many dimensions": (
        field(kind="linear", matrix=np.eye(4).tolist()),
        "active_dynamics: network.rbf.side 9 makes 6,561 centres in 4 dimensions; at most 1024, in "
        "at most 3",
    ),
    "too large a filter": (
        together(field(kind="linear", matrix=np.eye(3).tolist()), network(rbf={"side": 10})),
        "active_dynamics: network.rbf.side 10 makes a filter of 3,003 numbers; at most 2,048; "
        "lower it",
    ),
    "members of no ensemble": (
        network(seq_vae={"members": 3}),
        "active_dynamics.network.seq_vae: members 3 with dynamics: rbf; set dynamics: ensemble, or "
        "1",
    ),
    "a network without layers": (
        network(seq_vae={"dynamics_hidden": []}),
        "network.seq_vae.dynamics_hidden = []",
    ),
    "a decoder that only gradients learn": (
        network(decoder="mlp"),
        "active_dynamics.network: decoder: mlp is learned by seq_vae alone; set known or linear",
    ),
    "another such": (
        network(decoder="loglinear"),
        "decoder: loglinear is learned by seq_vae alone; set known or linea",
    ),
    "rates that may be negative": (
        together(VAE, COUNTS, network(decoder="mlp")),
        "active_dynamics: network.decoder: mlp gives no rates for noise: poisson; set known or "
        "loglinear",
    ),
    "other such": (
        together(LINEAR, COUNTS),
        "active_dynamics: network.decoder: linear gives no rates for noise: poisson; set known or "
        "loglinear",
    ),
    "exponentials by a straight line": (
        together(LINEAR, observed(kind="loglinear")),
        "active_dynamics: network.decoder: linear of bayes_filter cannot learn "
        "env.observation.kind: loglinear; set "
        "decoder: known",
    ),
    "noise that cannot be told": (
        together(LINEAR, observed(channels=2)),
        "active_dynamics: network.decoder: linear tells noise by what is left of 2 channels; raise "
        "env.observation.channels",
    ),
    "a gauge that cannot be told": (
        together(LINEAR, env(control=[[1.0], [0.0]])),
        "active_dynamics: network.decoder: linear needs actions that push each dimension; give "
        "env.control rank 2, or "
        "null",
    ),
    "the same with two numbers": (
        together(LINEAR, env(control=[[1.0, 2.0], [2.0, 4.0]])),
        "network.decoder: linear needs actions that push each dimension; give env.control rank 2, "
        "or null",
    ),
    "a warm-up too short to learn from": (
        together(LINEAR, collected(warmup=999)),
        "active_dynamics: network.decoder: linear is learned from collect.warmup 999; set at least "
        "1000",
    ),
}

VALUES = {
    "an unknown value": (
        weights(varience=1.0),
        "active_dynamics.train.acquisition: weights: 'varience' is unknown; known: variance, "
        "information, fisher_d, "
        "fisher_a, disagreement, action_cost",
    ),
    "nothing to look for": (
        weights(variance=0.0),
        "active_dynamics.train.acquisition: all weights are 0: nothing is looked for; give one "
        "value a weight",
    ),
    "something to shun": (
        weights(action_cost=-1.0),
        "active_dynamics.train.acquisition.weights.action_cost = -1.0: ",
    ),
    "disagreement of one": (
        weights(disagreement=1.0),
        "active_dynamics: train.acquisition.weights.disagreement needs network.family: seq_vae "
        "with dynamics: ensemble "
        "and several members; set these, or weigh another value",
    ),
    "disagreement of a single member": (
        together(
            ENSEMBLE, network(seq_vae={"members": 1}), weights(variance=0.0, disagreement=1.0)
        ),
        "active_dynamics: train.acquisition.weights.disagreement needs network.family: seq_vae "
        "with dynamics: ensemble",
    ),
    "disagreement of another family": (
        together(ENSEMBLE, network(family="bayes_filter"), weights(variance=0.0, disagreement=1.0)),
        "active_dynamics: train.acquisition.weights.disagreement needs network.family: seq_vae "
        "with dynamics: ensemble",
    ),
    **{
        f"{name} of an ensemble": (
            together(ENSEMBLE, weights(**({"variance": 0.0} | {name: 1.0}))),
            f"active_dynamics: train.acquisition.weights.{name} needs a posterior, which an "
            f"ensemble does not have; weigh "
            "disagreement",
        )
        for name in ("variance", "information", "fisher_d", "fisher_a")
    },
}

PLANS = {
    "more elites than candidates": (
        planner(elites=32),
        "active_dynamics.train.planner: keep 2 <= elites 32 < candidates 32 does not hold; mend "
        "one",
    ),
    "more kept than elites": (
        planner(keep=7),
        "active_dynamics.train.planner: keep 7 <= elites 6 < candidates 32 does not hold; mend one",
    ),
    "no room for what is new": (
        planner(keep=31, elites=31),
        "active_dynamics.train.planner: keep 31 and the mean are all of candidates 32: none is "
        "drawn; lower keep",
    ),
    "half a decision": (
        planner(replan_every=3),
        "active_dynamics.train.planner: replan_every 3 must be a multiple of hold 2, and at most "
        "horizon * hold 20",
    ),
    "a plan beyond its end": (
        planner(replan_every=22),
        "active_dynamics.train.planner: replan_every 22 must be a multiple of hold 2, and at most "
        "horizon * hold 20",
    ),
    "a while upside down": (
        policies(prbs_hold=[19, 3]),
        "active_dynamics.train.policies: prbs_hold [19, 3] is no range; put the lesser first",
    ),
    "a while of nothing": (policies(prbs_hold=[0, 3]), "active_dynamics.train.policies.prbs_hold"),
    "half a while": (
        policies(prbs_hold=[3]),
        "active_dynamics.train.policies.prbs_hold = [3]: has too few values (least and most "
        "transitions of the signs",
    ),
    "a still chirp": (policies(chirp=[0.0, 2.0]), "active_dynamics.train.policies.chirp"),
    "an arm twice": (
        train(arms=["active", "random", "active"]),
        "active_dynamics.train.arms = ['active', 'random', 'active']: an arm is named twice; name "
        "each once",
    ),
    "no arm": (train(arms=[]), "active_dynamics.train.arms = []: "),
    "an unknown arm": (
        train(arms=["active", "lazy"]),
        "active_dynamics.train.arms.1 = 'lazy': Input should be 'active', 'random', 'step', "
        "'prbs', 'chirp' or 'off'",
    ),
}

TOGETHER = {
    "a warm-up as long as the run": (
        collected(warmup=1000),
        "active_dynamics: collect.warmup 1000 leaves nothing of train.transitions 1000; lower it",
    ),
    "more checkpoints than transitions": (
        train(transitions=30, checkpoints=31),
        "active_dynamics.train: checkpoints 31 exceeds transitions 30; lower it",
    ),
    "looking beyond the window": (
        windows(horizons=20),
        "active_dynamics.train.seq_vae: horizons 20 is not below window 20; lower it",
    ),
    "no window in the run": (
        together(VAE, train(transitions=40)),
        "active_dynamics: train.seq_vae: window + burn_in 25 and min_windows 16 exceed "
        "train.transitions 40: nothing "
        "would be learned; lower one",
    ),
    "no plan in an episode": (
        env(episode_transitions=1),
        "active_dynamics: train.planner.replan_every 2 exceeds env.episode_transitions 1: episodes "
        "would end before "
        "anything is planned in them; lower it",
    ),
    "no window in an episode": (
        together(VAE, env(episode_transitions=24)),
        "active_dynamics: train.seq_vae: window + burn_in 25 exceeds env.episode_transitions 24: "
        "nothing would be "
        "learned; lower one",
    ),
    "a replay beyond memory": (
        together(train(transitions=10**7), {"seeds": 1024}),
        "active_dynamics: learners * train.transitions * env.observation.channels takes about "
        "11444 GiB; at most 64; lower",
    ),
    "covariances beyond memory": (
        together(network(rbf={"side": 31}), {"seeds": 1024}),
        "active_dynamics: learners * (network.rbf.side ** d * d) ** 2 takes about 169 GiB; at most "
        "64; lower one",
    ),
    "plans beyond memory": (
        planner(candidates=65536, horizon=256),
        "active_dynamics: seeds * train.planner.candidates * horizon takes about 202 GiB; at most "
        "64; lower one",
    ),
    "rollouts beyond memory": (
        together(collected(held_out_rollouts=65536), observed(channels=4096)),
        "active_dynamics: collect.held_out_rollouts of env.observation.channels takes about 202 "
        "GiB; at most 64; lower",
    ),
}

CHOICES = {
    "observation": (
        observed(kind="mlp"),
        "env.observation.kind = 'mlp': Input should be 'identity', 'linear' or 'loglin",
    ),
    "noise": (
        observed(noise="laplace"),
        "env.observation.noise = 'laplace': Input should be 'gaussian' or 'poisson'",
    ),
    "family": (
        network(family="ekf"),
        "network.family = 'ekf': Input should be 'bayes_filter' or 'seq_vae'",
    ),
    "decoder": (
        network(decoder="learned"),
        "network.decoder = 'learned': Input should be 'known', 'linear', 'loglinea",
    ),
    "dynamics": (
        network(seq_vae={"dynamics": "gp"}),
        "seq_vae.dynamics = 'gp': Input should be 'linear', 'mlp', 'rbf'",
    ),
    "planner": (
        planner(kind="cem"),
        "train.planner.kind = 'cem': Input should be 'icem' or 'mppi'",
    ),
    "optimizer": (
        windows(optimizer="adamw"),
        "train.seq_vae.optimizer = 'adamw': Input should be 'adam' or 'sgd'",
    ),
    "annealing": (
        windows(anneal_kind="cyclic"),
        "anneal_kind = 'cyclic': Input should be 'none' or 'linear'",
    ),
    "a misspelt key": (
        planner(candidate=32),
        "active_dynamics.train.planner.candidate: unknown key; did you mean 'candidates'?",
    ),
    "a goal": (
        train(acquisition={"goal": [0.0, 0.0]}),
        "active_dynamics.train.acquisition.goal: unknown key",
    ),
    "coupling": (network(coupling="decoupled"), "active_dynamics.network.coupling: unknown key"),
    "features": (network(features="fourier"), "active_dynamics.network.features: unknown key"),
    "environments": (
        windows(environments=4),
        "active_dynamics.train.seq_vae.environments: unknown key",
    ),
}

LIMITS = {
    ("seeds",): (0, 1025),
    ("env", "field", "speed"): (0.0, 2e6),
    ("env", "dt"): (0.0, 10.5),
    ("env", "process_noise"): (-0.1, 2e6),
    ("env", "action_bound"): (0.0, 2e6),
    ("env", "escape_radius"): (0.0, 2e6),
    ("env", "region_radius"): (0.0, 2e6),
    ("env", "observation", "channels"): (0, 4097),
    ("env", "observation", "noise_sd"): (0.0009, 2e6),
    ("env", "observation", "weight_sd"): (0.0, 2e6),
    ("env", "observation", "bias_sd"): (0.0, 2e6),
    ("collect", "warmup"): (0, 10**7),
    ("collect", "held_out_rollouts"): (7, 65537),
    ("collect", "starts"): (7, 65537),
    ("network", "rbf", "side"): (2, 32),
    ("network", "rbf", "range"): (0.0, 2e6),
    ("network", "rbf", "length"): (0.0, 2e6),
    ("network", "rbf", "prior_field_sd"): (0.0, 2e6),
    ("network", "seq_vae", "hidden"): (0, 4097),
    ("network", "seq_vae", "head"): (0, 4097),
    ("network", "seq_vae", "members"): (0, 65),
    ("train", "transitions"): (1, 10**10),
    ("train", "record_every"): (0,),
    ("train", "checkpoints"): (1, 1001),
    ("train", "acquisition", "margin"): (-0.1, 2e6),
    ("train", "planner", "candidates"): (1, 65537),
    ("train", "planner", "iterations"): (0, 1001),
    ("train", "planner", "horizon"): (0, 257),
    ("train", "planner", "elites"): (0,),
    ("train", "planner", "keep"): (-1,),
    ("train", "planner", "hold"): (0, 1001),
    ("train", "planner", "replan_every"): (0, 10_001),
    ("train", "planner", "alpha"): (-0.1, 1.0),
    ("train", "planner", "init_std"): (0.0, 2e6),
    ("train", "planner", "colour"): (-0.1, 4.1),
    ("train", "planner", "temperature"): (0.0, 2e6),
    ("train", "policies", "step_hold"): (0, 10**10),
    ("train", "seq_vae", "samples"): (0, 1025),
    ("train", "seq_vae", "horizons"): (0, 257),
    ("train", "seq_vae", "decay"): (0.0, 1.1),
    ("train", "seq_vae", "window"): (1, 10_001),
    ("train", "seq_vae", "burn_in"): (-1, 10_001),
    ("train", "seq_vae", "batch_size"): (0, 65537),
    ("train", "seq_vae", "updates"): (0, 1001),
    ("train", "seq_vae", "learning_rate"): (0.0, 1.5),
    ("train", "seq_vae", "weight_decay"): (-0.1, 1.5),
    ("train", "seq_vae", "max_grad_norm"): (0.0, 2e6),
    ("train", "seq_vae", "beta"): (-0.1, 2e6),
    ("train", "seq_vae", "warmup"): (-1, 10**10),
    ("train", "seq_vae", "anneal"): (0, 10**10),
    ("train", "seq_vae", "mask"): (-0.1, 1.0),
    ("train", "seq_vae", "min_windows"): (0, 10**10),
    ("evaluate", "elbo_samples"): (0, 4097),
}


@pytest.mark.parametrize("case", FIELDS)
def test_fields_that_cannot_be_are_refused(case: str):
    overlay, line = FIELDS[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", WORLDS)
def test_worlds_that_cannot_be_are_refused(case: str):
    overlay, line = WORLDS[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", LEARNERS)
def test_learners_that_cannot_learn_are_refused(case: str):
    overlay, line = LEARNERS[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", VALUES)
def test_values_that_are_not_defined_are_refused(case: str):
    overlay, line = VALUES[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", PLANS)
def test_plans_and_habits_that_cannot_be_are_refused(case: str):
    overlay, line = PLANS[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", TOGETHER)
def test_numbers_that_do_not_fit_together_are_refused_with_both_keys(case: str):
    overlay, line = TOGETHER[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize("case", CHOICES)
def test_an_unknown_choice_or_key_is_refused(case: str):
    overlay, line = CHOICES[case]
    assert line in refusal(overlay)


@pytest.mark.parametrize(
    ("arrays", "line"),
    [
        ({"axis_0": AXIS}, "holds axis_0; numpy.savez it with exactly axis_0, axis_1, vectors"),
        (
            TABLE | {"axis_2": AXIS},
            "holds axis_0, axis_1, vectors, axis_2; numpy.savez it with exactly axis_0, axis_1,",
        ),
        (
            {"x": AXIS, "y": AXIS, "v": AXIS},
            "holds x, y, v; numpy.savez it with exactly axis_0, axis_1, vectors",
        ),
        (
            TABLE | {"axis_1": np.ones((5, 3))},
            "axis_1 has 2 axes, expected one: the coordinates of the nodes",
        ),
        (
            TABLE | {"axis_0": np.float64(1)},
            "axis_0 has 0 axes, expected one: the coordinates of the nodes",
        ),
    ],
)
def test_a_table_of_other_arrays_is_refused(arrays: dict[str, Any], line: str):
    assert f"active_dynamics.env.field.table_file = '{FILE}': {line}" in refusal(
        OWN_TABLE, **arrays
    )


@pytest.mark.parametrize("keys", LIMITS, ids=".".join)
def test_each_number_has_limits_that_its_refusal_names(keys: tuple[str, ...]):
    for value in LIMITS[keys]:
        said = refusal(nested(keys, value))
        assert f"active_dynamics.{'.'.join(keys)} = {value}: Input should be " in said
        assert re.search(r"(greater|less) than (or equal to )?-?\d", said), said


def test_every_number_has_limits():
    numbers = {
        keys
        for keys, value in leaves(params_with({}).active_dynamics)
        if type(value) in (int, float)
    }
    assert numbers == set(LIMITS)


# What is allowed.


def test_a_field_has_the_numbers_of_its_kind_but_for_those_that_are_given():
    result = selected(field(kind="snowman", parameters={"beta": 3})).env.world.field
    assert dict(result.parameters) == {"w": 1.0, "d": 1.0, "beta": 3.0}
    assert [
        kind
        for kind in KINDS
        if kind not in ("linear", "table") and selected(field(kind=kind)).env.d != 2
    ] == []


def test_a_linear_field_has_the_dimensions_of_its_matrix():
    result = selected(
        together(field(kind="linear", matrix=np.eye(3).tolist()), network(rbf={"side": 5}))
    ).env
    assert (result.d, result.world.field.d, result.world.action_size) == (3, 3, 3)
    assert result.world.field.matrix == ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def test_control_says_how_long_actions_are():
    result = selected(env(control=[[1.0, 0.0, 2.0], [0.0, 1.0, 3.0]])).env.world
    assert result.control == ((1.0, 0.0, 2.0), (0.0, 1.0, 3.0))
    assert result.action_size == 3
    assert selected({}).env.world.action_size == 2


def test_a_table_file_stands_with_its_arrays_in_the_world():
    config = selected(OWN_TABLE)
    result = config.env.world.field.table
    assert result is not None
    assert result.name == "mine.npz"
    assert result.axes == ((-2.0, -1.0, 0.0, 1.0, 2.0), (-2.0, 0.0, 2.0))
    np.testing.assert_array_equal(result.vectors, TABLE["vectors"])
    again = ActiveDynamicsConfig.model_validate_json(config.model_dump_json())
    assert again == config
    assert hash(again.env.world) == hash(config.env.world)


def test_a_script_may_name_a_field_that_it_has_registered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinds, "_functions", {})
    kinds.register_field("my_field")(lambda x: -x)
    assert selected(field(kind="my_field")).env.world.field.kind == "my_field"
    line = "parameters: 'w' is no parameter of kind my_field; it has: none"
    assert line in refusal(field(kind="my_field", parameters={"w": 1.0}))


def test_a_decoder_is_learned_where_the_warm_up_tells_it():
    assert selected(LINEAR).network.decoder == "linear"
    turned = env(control=[[0.0, 2.0, 0.0], [-1.0, 0.0, 0.5]])
    assert selected(together(LINEAR, turned)).env.world.action_size == 3
    assert selected(together(VAE, network(decoder="mlp"))).network.decoder == "mlp"
    assert (
        selected(together(VAE, COUNTS, network(decoder="loglinear"))).env.emission.noise
        == "poisson"
    )


def test_an_ensemble_may_look_for_disagreement():
    result = selected(together(ENSEMBLE, weights(variance=0.0, disagreement=1.0, action_cost=0.1)))
    assert result.train.acquisition.weights == {
        "variance": 0.0,
        "disagreement": 1.0,
        "action_cost": 0.1,
    }
    assert (
        selected(network(seq_vae={"dynamics": "ensemble", "members": 3})).network.family
        == "bayes_filter"
    )


def test_a_window_may_be_as_long_as_an_episode():
    assert selected(together(VAE, env(episode_transitions=25))).train.seq_vae.length == 25
    assert selected(env(episode_transitions=2)).env.world.episode_transitions == 2


def test_a_learner_without_features_takes_any_dimension():
    result = selected(
        together(
            VAE,
            network(seq_vae={"dynamics": "mlp"}),
            field(kind="linear", matrix=np.eye(7).tolist()),
        )
    )
    assert result.env.d == 7
    assert not result.network.uses_rbf


@pytest.mark.parametrize("preset", [None, "original", "large", "smoke", "seq_vae"])
def test_each_preset_can_be_used(preset: str | None):
    result = read_params(ROOT, preset).active_dynamics
    again = ActiveDynamicsConfig.model_validate_json(result.model_dump_json())
    assert again == result
    assert hash(again.env.world) == hash(result.env.world)
    assert {"active", "random"} <= set(result.train.arms)


def test_the_original_has_the_numbers_of_the_original():
    result = read_params(ROOT, "original").active_dynamics
    assert result.learners == 2
    assert result.env.emission == ("loglinear", 50, "gaussian", 0.001, 0.408, 0.408)
    assert (result.env.world.field.normalise, result.env.world.field.speed) == ("box_max", 2.0)
    assert (result.env.process_noise, result.env.action_bound, result.env.escape_radius) == (
        0.1,
        0.1,
        10.0,
    )
    assert (result.network.family, result.network.decoder, result.network.seq_vae.dynamics) == (
        "seq_vae",
        "loglinear",
        "mlp",
    )
    assert [name for name, weight in result.train.acquisition.weights.items() if weight] == [
        "fisher_a"
    ]
    assert (
        result.train.transitions,
        result.train.seq_vae.optimizer,
        result.train.seq_vae.length,
    ) == (
        10_000,
        "sgd",
        20,
    )


def test_the_large_ensemble_may_look_for_disagreement():
    raw = overlaid(parse(ROOT / "params.yaml"), parse(ROOT / "presets" / "large.yaml"))
    result = validate(
        overlaid(raw, {"active_dynamics": together(VAE, weights(variance=0.0, disagreement=1.0))}),
        str,
    )
    assert result.active_dynamics.network.seq_vae.members == 5


def test_the_example_table_can_be_used():
    named = field(kind="table", table_file="inputs/active_dynamics/wind.npz")
    config = small("active_dynamics", **named)
    stored = collect(config, 0).held_out
    rms = np.sqrt(np.square(stored.grid_field).sum(1).mean())
    np.testing.assert_allclose(rms, config.env.field.speed, rtol=1e-4)


# Each key is read by something.

COLLECTED = {
    "env.field.kind": field(kind="duffing"),
    "env.field.parameters": field(parameters={"w": 2.0}),
    "env.field.normalise": field(normalise="none"),
    "env.field.speed": field(speed=2.0),
    "env.dt": env(dt=0.05),
    "env.process_noise": env(process_noise=0.02),
    "env.control": env(control=[[1.0], [0.5]]),
    "env.action_bound": env(action_bound=0.5),
    "env.episode_transitions": env(episode_transitions=5),
    "env.region_radius": env(region_radius=1.0),
    "env.observation.kind": observed(kind="loglinear"),
    "env.observation.channels": observed(channels=7),
    "env.observation.noise_sd": observed(noise_sd=0.2),
    "env.observation.weight_sd": observed(weight_sd=0.4),
    "env.observation.bias_sd": observed(bias_sd=0.2),
    "collect.warmup": collected(warmup=11),
    "collect.held_out_rollouts": collected(held_out_rollouts=10),
    "collect.starts": collected(starts=9),
}
"""A change of a key that changes what is collected."""
BESIDE = {
    "env.field.matrix": (
        field(kind="linear", matrix=ROTATION),
        field(matrix=[[-0.5, -1.0], [1.0, -0.4]]),
    ),
    "env.field.table_file": (OWN_TABLE, OWN_TABLE),
    "env.observation.noise": (observed(kind="loglinear"), COUNTS),
    "env.escape_radius": (field(speed=0.1), env(escape_radius=1.6)),
}
"""The same, of keys that count only beside others: those, and the change."""


def written(dataset: Dataset) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in to_arrays(dataset).items()}


@pytest.fixture(scope="module")
def reference() -> dict[str, bytes]:
    return written(collect(small("active_dynamics"), 0))


@pytest.mark.parametrize("key", COLLECTED)
def test_a_key_of_env_or_collect_changes_what_is_collected(key: str, reference: dict[str, bytes]):
    assert written(collect(small("active_dynamics", **COLLECTED[key]), 0)) != reference


@pytest.mark.parametrize("key", BESIDE)
def test_a_key_that_needs_others_changes_what_is_collected_with_them(key: str):
    beside, change = BESIDE[key]
    base = overlaid(SMALL["active_dynamics"], beside)
    turned = TABLE | {"vectors": TABLE["vectors"][::-1]}
    item, other = (
        selected(base),
        selected(overlaid(base, change), **(turned if key == "env.field.table_file" else TABLE)),
    )
    assert written(collect(item, 0)) != written(collect(other, 0))


def test_no_key_of_env_or_collect_is_forgotten_above():
    keys = {
        ".".join(keys)
        for keys, _ in leaves(small("active_dynamics"))
        if keys[0] in ("env", "collect")
    }
    assert keys == set(COLLECTED) | set(BESIDE)


RUNS = (
    train(arms=["active", "random"], planner={"kind": "mppi"}),
    together(VAE, train(arms=["active"])),
    together(ENSEMBLE, train(arms=["active"]), weights(variance=0.0, disagreement=1.0)),
)
"""Together they want every other key."""


def test_every_other_key_is_read_while_learning_or_evaluating(monkeypatch: pytest.MonkeyPatch):
    """Read by what runs, not by the config's own checks, which are done before; the tests above
    look after Collect.
    """
    brief = {"seeds": 1, "train": {"transitions": 20, "record_every": 10, "checkpoints": 2}}
    configs = [small("active_dynamics", **together(brief, run)) for run in RUNS]
    datasets = [collect(config, 0) for config in configs]
    local = {
        name: part
        for name, part in vars(room).items()
        if isinstance(part, type) and issubclass(part, Section)
    }
    sections = [
        part
        for part in local.values()
        if part.__module__ == room.__name__ and part is not room.Collect
    ]
    read: set[tuple[str, str]] = set()
    for section in sections:
        monkeypatch.setattr(
            section, "__getattribute__", noting(read, section.__name__), raising=False
        )
    for config, dataset in zip(configs, datasets, strict=True):
        evaluate(config, list(learn(config, dataset, 0))[-1].state, dataset, 0)
    expected = {(section.__name__, name) for section in sections for name in section.model_fields}
    assert expected - read == set()


def noting(read: set[tuple[str, str]], section_name: str) -> Any:
    def get(section: BaseModel, name: str) -> Any:
        read.add((section_name, name))
        return object.__getattribute__(section, name)

    return get
