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
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import Dataset, collect, held_out_envs
from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.cycle.acting import greedy_policy
from quatrain.models.iqn.serve import BLOCK, answer, export, request
from quatrain.models.iqn.train import State, init_state
from tests.conftest import small

SEEDS, AGENTS, WORLDS, TURNS, FRAMES, GREEDY_QUANTILES = 2, 3, 5, 7, 4, 6
FRAME = (5, 3, 3)
"""Channels, rows and columns: empty, wall, ground, gem, agent within one cell."""


@cache
def hunt(
    noisy: str = "none", evaluation_network: str = "target", agents: int = AGENTS
) -> IqnConfig:
    return small(
        "iqn",
        seeds=SEEDS,
        env={"agents": agents, "max_turns": 10, "vision_radius": 1},
        collect={"held_out_worlds": WORLDS},
        network={"frames": FRAMES, "noisy": noisy},
        train={"acting": {"quantiles": GREEDY_QUANTILES, "evaluation_network": evaluation_network}},
    )


@cache
def collected() -> Dataset:
    """The dataset of all these configs but those of fewer agents: it depends on the world alone."""
    return collect(hunt(), 3)


@cache
def untrained(config: IqnConfig) -> State:
    """Networks of the seed, whose target networks are others: they choose among actions as well as
    learned ones.
    """
    fresh, other = (init_state(config, collected(), seed) for seed in (7, 8))
    return fresh._replace(target_params=other.params)


@cache
def asked() -> dict[str, np.ndarray]:
    return request(hunt(), collected())


def exported(config: IqnConfig) -> dict[str, np.ndarray]:
    return export(config, untrained(config), collected())


def played(config: IqnConfig, params: Any) -> turns.Turn:
    """Some turns of the held-out worlds by the policy of evaluations."""
    envs, world = held_out_envs(config, collected().held_out), make_world(config.env.rules)
    policy = greedy_policy(config, params)
    return jax.device_get(
        turns.play(world, envs, policy, jax.random.key(1), jnp.int32(0), TURNS).turns
    )


def frame_values(frames: np.ndarray) -> dict[str, np.ndarray]:
    """What each agent saw in each turn as a user would write it down: frame by frame, blank before
    the start.
    """
    views, agents = [], []
    for turn in range(TURNS):
        for agent in range(AGENTS):
            for world in range(WORLDS):
                back = [turn - age for age in reversed(range(FRAMES))]
                views.append(
                    [
                        frames[t, agent, world].reshape(FRAME) if t >= 0 else np.zeros(FRAME)
                        for t in back
                    ]
                )
                agents.append(agent)
    return {"views": np.array(views, np.uint8), "agents": np.array(agents, np.int32)}


@pytest.mark.parametrize(
    ("evaluation_network", "noisy"), [("target", "none"), ("online", "factorised")]
)
def test_the_greedy_action_is_the_one_that_evaluation_plays(evaluation_network: str, noisy: str):
    config = hunt(noisy, evaluation_network)
    state = untrained(config)
    params = state.target_params if evaluation_network == "target" else state.params
    episode = played(config, jax.tree.map(lambda leaf: leaf[0], params))
    answered = answer(config, exported(config), frame_values(episode.frames))
    best = np.sort(answered["values"])
    sure = best[:, -1] - best[:, -2] > 1e-5
    assert sure.mean() > 0.9
    assert len(set(answered["action"][sure].tolist())) > 1
    np.testing.assert_array_equal(answered["action"][sure], episode.actions.reshape(-1)[sure])


def test_values_are_means_over_quantiles_and_the_best_one_is_taken():
    config = hunt()
    answered = answer(config, exported(config), asked())
    taus = (jnp.arange(GREEDY_QUANTILES) + 0.5)[None] / GREEDY_QUANTILES
    for number, agent in enumerate(asked()["agents"].tolist()):
        ours = jax.tree.map(
            lambda leaf, agent=agent: leaf[0, agent], untrained(config).target_params
        )
        quantiles = network.apply(
            config.network, ours, jnp.asarray(asked()["views"][number].reshape(1, -1)), taus
        )[0]
        np.testing.assert_allclose(answered["quantiles"][number], quantiles, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(
            answered["values"][number], quantiles.mean(0), rtol=1e-5, atol=1e-6
        )
        assert answered["action"][number] == answered["values"][number].argmax()


def test_agents_in_any_order_and_number_get_their_own_answers():
    config = hunt()
    arrays, rng = exported(config), np.random.default_rng(0)
    count = 2 * BLOCK + 3
    views = rng.integers(0, 3, (count, FRAMES, *FRAME), np.uint8)
    agents = np.where(np.arange(count) < BLOCK + 1, 1, rng.integers(0, AGENTS, count))
    together = answer(config, arrays, {"views": views, "agents": agents})
    for number in (0, BLOCK, BLOCK + 1, count - 1):
        alone = answer(
            config,
            arrays,
            {"views": views[number : number + 1], "agents": agents[number : number + 1]},
        )
        np.testing.assert_allclose(
            alone["quantiles"][0], together["quantiles"][number], rtol=1e-5, atol=1e-6
        )
    other = answer(config, arrays, {"views": views, "agents": (agents + 1) % AGENTS})
    assert (np.abs(other["values"] - together["values"]).max(1) > 1e-3).all()


def test_the_example_is_what_the_first_and_the_last_agent_see():
    assert asked()["agents"].tolist() == [0, AGENTS - 1]
    assert asked()["views"].shape == (2, FRAMES, *FRAME)
    own_cell = asked()["views"][:, :, -1, 1, 1]
    assert (own_cell == 1).all(), "each frame has the agent in its middle"


def test_a_lone_agent_is_asked_twice():
    config = hunt(agents=1)
    assert request(config, collect(config, 3))["agents"].tolist() == [0, 0]


VIEW = np.zeros((FRAMES, *FRAME), np.uint8)


@pytest.mark.parametrize(
    ("request_arrays", "message"),
    [
        ({"views": [VIEW]}, "the request has the inputs views; give exactly views, agents"),
        (
            {"views": VIEW, "agents": [0]},
            "views is uint8[4, 5, 3, 3]; give whole numbers [questions, 4, 5, 3, 3]",
        ),
        (
            {"views": [VIEW], "agents": [0.5]},
            "agents is float64[1]; give whole numbers [questions]",
        ),
        ({"views": [VIEW, VIEW], "agents": [0, 3]}, "agents[1] is 3; give whole numbers in 0..2"),
        ({"views": [VIEW], "agents": [-1]}, "agents[0] is -1; give whole numbers in 0..2"),
        (
            {"views": [VIEW, VIEW + 3], "agents": [0, 1]},
            "views[1, 0, 0, 0, 0] is 3; give whole numbers in 0..2",
        ),
    ],
)
def test_another_request_is_refused_with_what_is_right(
    request_arrays: dict[str, Any], message: str
):
    with pytest.raises(ValueError, match=f"^{re.escape(f'iqn: {message}')}$"):
        answer(hunt(), {}, {name: np.asarray(values) for name, values in request_arrays.items()})


def test_networks_of_another_number_of_agents_are_refused():
    fewer = {name: array[:1] for name, array in exported(hunt()).items()}
    with pytest.raises(
        ValueError, match=r"not a learner of this config: params/\w+/\w+ is float32\(1, "
    ):
        answer(hunt(), fewer, asked())
