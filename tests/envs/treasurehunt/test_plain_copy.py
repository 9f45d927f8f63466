"""The world against an object in every cell and loops over all of them, trajectory by
trajectory.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reference.iqn_world import ObjectWorld, play_randomly
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.layouts import LayoutError, parse_map, starts
from quatrain.envs.treasurehunt.policies import free_random_policy, oracle_policy, random_policy
from quatrain.envs.treasurehunt.rules import TREASUREHUNT, Entity, Rules
from quatrain.envs.treasurehunt.world import make_world, spawn_items
from tests.envs.treasurehunt.played import order_of

TURNS = 200
POLICIES = (
    random_policy,
    free_random_policy,
    partial(oracle_policy, view="view"),
    partial(oracle_policy, view="full"),
)


def drawn_map(rng, entities):
    """A connected map of random symbols."""
    while True:
        height, width = rng.integers(4, 9, 2)
        symbols = rng.choice(list("#.-A12"), (height, width), p=[0.2, 0.55, 0.1, 0.05, 0.05, 0.05])
        symbols[[0, -1]] = "#"
        symbols[:, [0, -1]] = "#"
        try:
            drawn = parse_map("\n".join("".join(row) for row in symbols), "drawn", entities)
        except LayoutError:
            continue
        if len(starts(drawn)):
            return drawn


def drawn_rules(seed):
    rng = np.random.default_rng(seed)
    entities = (
        Entity("gem", 3.0, 1.0),
        Entity("bone", -2.0, 0.5),
        Entity("dust", 0.0, 0.0),
        Entity("food", 1.5, 2.0),
    )
    entities = entities[: rng.integers(2, 5)]
    room = drawn_map(rng, len(entities))
    return Rules(
        map=room,
        agents=int(rng.integers(1, min(len(starts(room)), 6) + 1)),
        max_turns=int(rng.integers(1, 90)),
        entities=entities,
        spawn_probability=float(rng.choice([0.0, 0.02, 0.3, 1.0])),
        wall_value=-1.0,
        agent_value=float(rng.choice([0.0, -0.25])),
        vision_radius=int(rng.integers(1, 4)),
        ground=str(rng.choice(["sand", "plain"])),
        agent_order=str(rng.choice(["fixed", "shuffled"])),
    )


@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_every_turn_equals_that_of_the_plain_copy(seed):
    rules = drawn_rules(seed)
    world, world_key, key = make_world(rules), jax.random.key(seed), jax.random.key(seed + 1)
    policy = POLICIES[seed % len(POLICIES)](rules)
    played = jax.jit(
        lambda: turns.play(
            world, turns.start(world, world_key[None], 1), policy, key, jnp.int32(0), TURNS
        )
    )()
    reset = jax.jit(world.reset)
    grow = jax.jit(lambda episode, turn: spawn_items(rules, world_key, episode, turn))
    turn = jax.tree.map(
        lambda leaf: np.asarray(leaf)[..., 0, :] if leaf.ndim == 4 else np.asarray(leaf)[..., 0],
        played.turns,
    )
    payable = {
        rules.wall_value,
        rules.agent_value,
        0.0,
        *(entity.value for entity in rules.entities),
    }
    assert set(turn.rewards.reshape(-1).tolist()) <= payable
    copy, episode = ObjectWorld(rules, np.random.default_rng(0)), 0
    copy.reset(np.asarray(reset(world_key, jnp.int32(0)).positions))
    for number in range(TURNS):
        copy.begin_turn(np.asarray(grow(jnp.int32(episode), jnp.int32(copy.turn))))
        for agent in order_of(world, key, number):
            np.testing.assert_array_equal(turn.frames[number, agent], copy.observe(agent))
            assert turn.rewards[number, agent] == copy.act(agent, int(turn.actions[number, agent]))
        assert_lawful(copy)
        over = copy.end_turn()
        assert over == turn.truncated[number]
        if over:
            episode += 1
            copy.reset(np.asarray(reset(world_key, jnp.int32(episode)).positions))
    np.testing.assert_array_equal(played.envs.state.items[0], copy.items())
    assert played.envs.state.positions[0].tolist() == [
        list(agent.location[:2]) for agent in copy.agents
    ]


def assert_lawful(copy):
    """Agents stand on distinct floor cells, and nothing else with them."""
    cells = {agent.location for agent in copy.agents}
    assert len(cells) == len(copy.agents)
    assert all(
        copy.rules.map.rows[y][x] != "#" and copy.map[y, x, 1].kind == "agent" for y, x, _ in cells
    )


@pytest.mark.slow
def test_the_plain_copy_alone_earns_what_the_original_engine_did():
    copy = ObjectWorld(TREASUREHUNT, np.random.default_rng(0))
    assert play_randomly(copy, 150 * 50) == pytest.approx(51.5, abs=3.5)
