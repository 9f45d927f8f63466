"""Steps of the adapters are those of the worlds themselves."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import quatrain.envs.adapters.treasurehunt as adapter
from quatrain.envs.grid import dynamics
from quatrain.envs.grid.layouts import parse_layout
from quatrain.envs.treasurehunt.turns import play, start
from quatrain.envs.treasurehunt.world import make_world
from tests.conftest import params_with
from tests.envs.treasurehunt.played import TREASUREHUNT, changed, entities

HALLS = "S.X...\n..X.X.\n......\nX.X..G"


def vector(name: str, num_envs: int, **settings: Any) -> Any:
    return gymnasium.make_vec(f"quatrain/{name}-v0", num_envs=num_envs, **settings)


def test_a_grid_moves_as_its_tables_say_and_its_goal_pays():
    envs = vector("Grid", 64, layout=HALLS, max_episode_steps=30)
    grid = dynamics.make_grid(parse_layout(HALLS, "halls"))
    env = params_with({}).allo.env
    inputs = dynamics.observe(env, grid, dynamics.draw_frequencies(env, 0))
    _, info = envs.reset(seed=0)
    states, elapsed = info["state"], np.zeros(64, int)
    assert (states != grid.goal).all()
    rng, pays, late = np.random.default_rng(0), 0, 0
    step = jax.vmap(dynamics.step, (None, 0, 0, 0, None))
    for _ in range(100):
        actions = rng.integers(4, size=64)
        expected = step(grid, states, elapsed, actions, 30)
        observation, rewards, terminated, truncated, info = envs.step(actions)
        np.testing.assert_array_equal(terminated, expected.terminated)
        np.testing.assert_array_equal(truncated, expected.truncated)
        np.testing.assert_array_equal(rewards, terminated.astype(float))
        ended = terminated | truncated
        np.testing.assert_array_equal(info["state"][~ended], expected.next_state[~ended])
        np.testing.assert_array_equal(observation, inputs[info["state"]])
        pays += terminated.sum()
        late += truncated.sum()
        states, elapsed = info["state"], np.where(ended, 0, elapsed + 1)
    assert pays > 20
    assert late > 20


def test_a_hunt_of_one_agent_is_that_of_the_learner():
    """Frames and rewards of compiled turns, also beyond the end of an episode."""
    kinds = entities(gem=(10.0, 1.0), bone=(-5.0, 2.0))
    rules = changed(TREASUREHUNT, agents=1, max_turns=7, entities=kinds)
    simulation = adapter.TreasureHuntSimulation(rules, 5)
    simulation.seed(11)
    world = make_world(rules)
    keys = jax.random.split(jax.random.key(11), 5)

    def clockwise(_key: Any, _agent: Any, _stack: Any, states: Any) -> Any:
        return jnp.asarray([0, 3, 1, 2])[(states.turn + states.episode) % 4].astype(jnp.int8)

    turns = play(world, start(world, keys, 1), clockwise, jax.random.key(0), jnp.int32(0), 21).turns
    simulation.begin(np.ones(5, bool))
    for number in np.flatnonzero(~turns.final[:-1].any(1)):
        frames = simulation.observations.reshape(5, -1)
        np.testing.assert_array_equal(frames, turns.frames[number, 0])
        outcome = simulation.step(np.asarray(turns.actions[number, 0]))
        np.testing.assert_array_equal(outcome.rewards, turns.rewards[number, 0])
        np.testing.assert_array_equal(outcome.truncated, turns.final[number + 1])
        if outcome.truncated.any():
            simulation.begin(outcome.truncated)
    assert set(np.unique(turns.rewards)) >= {-1.0, 0.0}
