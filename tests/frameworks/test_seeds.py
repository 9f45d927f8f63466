"""Seeds learn the same in a loop, side by side, and on any number of devices."""

import json
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.frameworks.jax import over_devices, over_seeds
from tests.conftest import ROOT

MODULE = "tests.frameworks.spread"


def spread(*model: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", MODULE, *model]
    said = subprocess.check_output(command, cwd=ROOT, text=True)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize("parallelism", ["auto", "vmap", "scan"])
def test_each_seed_gets_its_own_argument_and_what_all_share(parallelism: Any):
    def function(seed: dict[str, jax.Array], shared: jax.Array) -> jax.Array:
        assert seed["x"].shape == (3,)
        return seed["x"] * shared + seed["number"]

    seeds = {"x": jnp.arange(15.0).reshape(5, 3), "number": jnp.arange(5)}
    shared = jnp.float32(2)
    result = over_seeds(function, parallelism)(seeds, shared)
    np.testing.assert_array_equal(result, 2 * seeds["x"] + seeds["number"][:, None])


def loops(parallelism: Any, seeds: int) -> int:
    """How many loops a program has."""
    matrices = jnp.ones((seeds, 7, 7))
    text = jax.jit(over_seeds(lambda each: each @ each, parallelism)).lower(matrices).as_text()
    return text.count("stablehlo.while")


def test_only_scan_is_a_loop_which_auto_is_on_a_cpu_and_a_single_seed_has_none():
    assert [loops(each, 5) for each in ("auto", "vmap", "scan")] == [1, 0, 1]
    assert [loops(each, 1) for each in ("auto", "vmap", "scan")] == [0, 0, 0]


def test_a_single_device_runs_the_program_itself():
    def program(seeds: jax.Array) -> jax.Array:
        return seeds

    assert over_devices(program, 5) is program


def test_any_number_of_devices_gives_the_bits_of_one_and_each_seed_its_own_result():
    lines = spread()
    used = {(line["available"], line["seeds"]): line["devices"] for line in lines}
    assert used == {(1, 8): 1, (2, 8): 2, (4, 8): 4, (4, 4): 4, (2, 3): 1, (4, 6): 3}
    assert len({line["digest"] for line in lines if line["seeds"] == 8}) == 1
    for line in lines:
        np.testing.assert_allclose(line["end"], line["alone"], rtol=1e-5)
        assert len(np.unique(line["end"], axis=0)) == line["seeds"]
    # One program for each device, of which results of a call are the arguments of the next.
    assert all(line["programs"] <= line["devices"] for line in lines)


@pytest.mark.full
def test_a_model_trained_on_two_devices_has_the_bytes_of_one():
    lines = spread("allo", "iqn")
    assert [line["devices"] for line in lines] == [1, 2, 1, 2]
    for of_model in (lines[:2], lines[2:]):
        assert len({line[name] for line in of_model for name in ("digest", "resumed")}) == 1
    assert all(line["learners"] == line["seeds"] for line in lines)
