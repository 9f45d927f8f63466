"""What a served model says of views, against the agents that play when a learner is judged."""

import re
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.world import make_world
from quatrain.frameworks.jax import BLOCKS
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.network import greedy_policy
from quatrain.models.iqn.serve import export, load, request
from quatrain.models.iqn.train import init_state
from quatrain.models.iqn.treasurehunt import Dataset, held_out_envs
from quatrain.serving import answer
from tests.conftest import shapes_unchecked, small

AGENTS, WORLDS, TURNS, FRAMES, QUANTILES = 2, 64, 5, 2, 4
FRAME = (5, 5, 5)
"""Channels, rows and columns: empty, wall, ground, gem, agent within two cells."""
CONFIG = small("iqn")


@cache
def collected() -> Dataset:
    with shapes_unchecked():
        return collect(CONFIG, 11)


@cache
def untrained() -> State:
    """Networks of one seed, with target networks of another."""
    fresh, other = (init_state(CONFIG, collected(), seed) for seed in (7, 8))
    return fresh._replace(target_params=other.params)


@cache
def exported() -> dict[str, np.ndarray]:
    return export(CONFIG, untrained(), collected())


def ask(views: Any, agents: Any) -> dict[str, np.ndarray]:
    asked = {"views": np.asarray(views, np.uint8), "agents": np.asarray(agents)}
    return answer("iqn", load(CONFIG, exported()), asked)


def target_params(agent: int | None = None) -> Any:
    place = 0 if agent is None else (0, agent)
    return jax.tree.map(lambda leaf: leaf[place], untrained().target_params)


def test_the_greedy_action_is_the_one_that_evaluation_plays():
    @jax.jit
    def play(params: Any) -> turns.Turn:
        envs, world = held_out_envs(CONFIG, collected().held_out), make_world(CONFIG.env)
        policy, first = greedy_policy(CONFIG, params), jnp.int32(0)
        return turns.play(world, envs, policy, jax.random.key(1), first, TURNS).turns

    episode = jax.device_get(play(target_params()))
    frames = episode.frames.reshape(TURNS, AGENTS, WORLDS, *FRAME)
    before = np.concatenate([np.zeros_like(frames[:1]), frames[:-1]])
    views = np.stack([before, frames], 3).reshape(-1, FRAMES, *FRAME)
    agents = np.broadcast_to(np.arange(AGENTS)[:, None], (TURNS, AGENTS, WORLDS)).ravel()
    answered = ask(views, agents)
    assert len(views) > AGENTS * BLOCKS[-2]
    order = np.random.default_rng(0).permutation(len(views))
    permuted = ask(views[order], agents[order])["quantiles"]
    np.testing.assert_allclose(permuted, answered["quantiles"][order], 1e-5, 1e-6)
    best = np.sort(answered["values"])
    sure = best[:, -1] - best[:, -2] > 1e-5
    assert sure.mean() > 0.9
    assert len(set(answered["action"][sure].tolist())) > 1
    np.testing.assert_array_equal(answered["action"][sure], episode.actions.ravel()[sure])


def test_values_are_means_over_quantiles_and_the_best_one_is_taken():
    asked = request(CONFIG, collected())
    answered = ask(**asked)
    taus = (jnp.arange(QUANTILES) + 0.5)[None] / QUANTILES
    apply = jax.jit(network.apply, static_argnums=0)
    for number, agent in enumerate(asked["agents"].tolist()):
        stack = jnp.asarray(asked["views"][number].reshape(1, -1))
        quantiles = apply(CONFIG.network, target_params(agent), stack, taus)[0]
        np.testing.assert_allclose(answered["quantiles"][number], quantiles, 1e-5, 1e-6)
        np.testing.assert_allclose(answered["values"][number], quantiles.mean(0), 1e-5, 1e-6)
        assert answered["action"][number] == answered["values"][number].argmax()


def test_the_network_of_evaluations_is_exported():
    online = small("iqn", train={"acting": {"evaluation_network": "online"}})
    for config, params in ((CONFIG, untrained().target_params), (online, untrained().params)):
        kernel = export(config, untrained(), collected())["params/hidden/kernel"]
        np.testing.assert_array_equal(kernel, params["hidden"]["kernel"][0])


def test_a_view_from_within_a_wall_and_an_agent_too_many_are_refused():
    views = np.zeros((2, FRAMES, *FRAME), np.uint8)
    with pytest.raises(ValueError, match=r"^iqn: agents\[1\] is 2; give whole numbers in 0\.\.1$"):
        ask(views, [0, AGENTS])
    views[1, 1, 1, 2, 2] = 1
    message = (
        "iqn: views[1, 1] has a wall in the middle, where the agent is; "
        "give views around cells of the map that can be walked on"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        ask(views, [0, 1])
