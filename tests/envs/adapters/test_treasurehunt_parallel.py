"""The treasure hunt of several agents: PettingZoo's tests pass, and the turns are the world's."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

from quatrain.envs.adapters.treasurehunt_parallel import parallel_env
from quatrain.envs.treasurehunt.turns import turn_order
from quatrain.envs.treasurehunt.world import make_world
from quatrain.errors import ConfigError
from tests.pipeline.fixture_types import Capture

SMALL = {"height": 7, "width": 7, "agents": 3, "max_turns": 12}


@pytest.mark.parametrize("order", ["fixed", "shuffled"])
def test_pettingzoos_tests_pass(order: str, capsys: Capture):
    parallel_api_test(parallel_env(agent_order=order, **SMALL), num_cycles=40)
    parallel_seed_test(lambda: parallel_env(agent_order=order, **SMALL), num_cycles=30)
    assert "Passed Parallel API test" in capsys.readouterr().out


def test_pictures_are_of_the_whole_map():
    env = parallel_env(**SMALL, render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (7 * 48, 7 * 48, 3)
    assert parallel_env(**SMALL).render() is None


def test_agents_move_one_after_another_on_what_they_saw_together():
    """Turn by turn against the world's own functions, agent by agent in a plain loop."""
    for order in ("fixed", "shuffled"):
        env = parallel_env(agent_order=order, **SMALL)
        world = make_world(env._simulation.rules)
        observed, _ = env.reset(seed=5)
        state = jax.tree.map(lambda leaf: leaf[0], env._simulation._turn.state)
        rng = np.random.default_rng(0)
        orders = set()
        for turn in range(12):
            for index, agent in enumerate(env.agents):
                expected = world.observe(state, jnp.int32(index)).reshape(observed[agent].shape)
                np.testing.assert_array_equal(observed[agent], expected)
            actions = {agent: int(rng.integers(4)) for agent in env.agents}
            moves = list(actions.values())
            key = jax.random.fold_in(jax.random.fold_in(state.key, 0), 2**32 - 2)
            acting = turn_order(world, jax.random.fold_in(key, turn)).tolist()
            orders.add(tuple(acting))
            expected_rewards = {}
            for index in acting:
                result = world.act(state, jnp.int32(index), jnp.int32(moves[index]))
                state = result.state
                expected_rewards[f"agent_{index}"] = float(result.reward)
            observed, rewards, terminated, truncated, _ = env.step(actions)
            assert rewards == expected_rewards
            assert not any(terminated.values())
            assert set(truncated.values()) == {turn == 11}
            state = world.begin_turn(world.end_turn(state).state)
        assert (len(orders) == 1) == (order == "fixed")
        assert env.agents == []


def test_what_is_not_allowed_is_refused():
    env = parallel_env(**SMALL)
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"call reset\(\) before step\(\)"):
        env.step({})
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"needs an action of every agent; agent_1 has none\."):
        env.step({"agent_0": 1, "agent_2": 1})
    with pytest.raises(ValueError, match=r"An action is a whole number in 0\.\.3"):
        env.step(dict.fromkeys(env.agents, 4))
    with pytest.raises(ConfigError, match="agents = 300: Input should be less"):
        parallel_env(agents=300)
