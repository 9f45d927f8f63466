"""The world against an object in every cell and loops over all of them, turn by turn."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.reference.iqn_world import ObjectWorld
from quatrain.envs.treasurehunt import turns
from quatrain.envs.treasurehunt.layouts import LayoutError, parse_map, starts
from quatrain.envs.treasurehunt.policies import free_random_policy, oracle_policy, random_policy
from quatrain.envs.treasurehunt.world import MOVES, make_world, spawn_items
from tests.envs.treasurehunt.played import TREASUREHUNT, changed, entities, orders_of
from tests.quick_jit import quick_jit

TURNS = 120
ENTITIES = entities(gem=(3.0, 1.0), bone=(-2.0, 0.5), dust=(0.0, 0.0), food=(1.5, 2.0))


def drawn_map(rng, entities):
    """Draws a connected map of random symbols."""
    while True:
        height, width = rng.integers(4, 9, 2)
        symbols = rng.choice(list("#.-A12"), (height, width), p=[0.2, 0.55, 0.1, 0.05, 0.05, 0.05])
        symbols[[0, -1]] = "#"
        symbols[:, [0, -1]] = "#"
        try:
            drawn = parse_map("\n".join("".join(row) for row in symbols), "drawn", entities)
        except LayoutError:
            continue
        if len(starts(drawn)) > 3:
            return drawn


@pytest.mark.parametrize(
    ("seed", "policy", "changes"),
    [
        (0, random_policy, {"agents": 4, "ground": "sand", "agent_order": "shuffled"}),
        (1, free_random_policy, {"agents": 1, "ground": "plain", "vision_radius": 3}),
        (2, partial(oracle_policy, view="full"), {"agents": 3, "spawn_probability": 1.0}),
    ],
)
def test_every_turn_equals_that_of_the_plain_copy(seed, policy, changes):
    layout = "\n".join(drawn_map(np.random.default_rng(seed), len(ENTITIES)).rows)
    settings = {"layout": layout, "max_turns": 17, "entities": ENTITIES, "spawn_probability": 0.1}
    settings |= {"agents": 2, "agent_value": -0.25, "vision_radius": 1, "ground": "plain"}
    rules = changed(TREASUREHUNT, **(settings | changes))
    world, key = make_world(rules), jax.random.key(seed)

    @quick_jit
    def run():
        episode, turn = jnp.divmod(jnp.arange(TURNS), rules.max_turns + 1)
        envs = turns.start(world, key[None], 1)
        return (
            turns.play(world, envs, policy(rules), key, jnp.int32(0), TURNS),
            jax.vmap(partial(spawn_items, rules, key))(episode, turn),
            jax.vmap(world.reset, (None, 0))(key, episode).positions,
            orders_of(world, key, TURNS),
        )

    played, spawned, positions, orders = jax.device_get(jax.tree.map(data, run()))
    columns = (played.turns.frames, played.turns.rewards, played.turns.events)
    frames, rewards, events = (column[:, :, 0] for column in columns)
    final = [*played.turns.final[:, 0], played.envs.final[0]]
    copy = ObjectWorld(rules, np.random.default_rng(0))
    copy.reset(positions[0])
    for number in range(TURNS):
        copy.begin_turn(spawned[number])
        for agent in orders[number]:
            np.testing.assert_array_equal(frames[number, agent], copy.observe(agent))
            action = int(played.turns.actions[number, agent, 0])
            assert events[number, agent] == event_of(copy, agent, action)
            reward = copy.act(agent, action)
            assert rewards[number, agent] == (0 if final[number] else reward)
        assert_lawful(copy)
        was_last = copy.end_turn()
        assert was_last == final[number + 1]
        if final[number]:
            copy.reset(positions[number + 1])
    np.testing.assert_array_equal(played.envs.state.items[0], items_of(copy))
    ends = [list(agent.location[:2]) for agent in copy.agents]
    assert played.envs.state.positions[0].tolist() == ends


def items_of(copy):
    """Returns the items (height, width): 0 none, k an item of entity k."""
    numbers = {entity.name: k for k, entity in enumerate(copy.rules.entities, start=1)}
    return np.array([[numbers.get(thing.kind, 0) for thing in row] for row in copy.map[:, :, 1]])


def event_of(copy, agent, action):
    y, x, layer = copy.agents[agent].location
    kind = copy.map[y + MOVES[action][0], x + MOVES[action][1], layer].kind
    events = {"empty": 0, "wall": -1, "agent": -2}
    return (events | {entity.name: k for k, entity in enumerate(ENTITIES, start=1)})[kind]


def data(leaf):
    return jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


def assert_lawful(copy):
    """Agents stand on distinct floor cells, and nothing else with them."""
    cells = {agent.location for agent in copy.agents}
    assert len(cells) == len(copy.agents)
    for y, x, _ in cells:
        assert copy.rules.map.rows[y][x] != "#"
        assert copy.map[y, x, 1].kind == "agent"
