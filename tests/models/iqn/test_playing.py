"""The first half of a cycle: what is counted of turns, and that the replay gives back what agents
saw.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt.turns import Turn
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import train
from quatrain.models.iqn.collect import to_transitions
from quatrain.models.iqn.cycle import playing
from quatrain.models.iqn.cycle.playing import epsilon_at
from quatrain.replay import frames
from tests import probes

GEMS = {"name": "gem", "value": 10.0, "weight": 1.0}, {"name": "bone", "value": -3.0, "weight": 1.0}


def test_happenings_are_shares_of_agent_steps():
    config = probes.hunt(env={"entities": list(GEMS)})
    events = np.array(
        [[[1, 0, -1], [2, 2, -2]], [[1, 1, -2], [0, 0, -1]]], np.int8
    )  # (turn, agent, lane)
    rewards = np.array([0.0, 10.0, -3.0, 0.0, -1.0], np.float32)[events]
    nothing = jnp.zeros((2, 3), bool)
    turn = Turn(
        jnp.zeros((2, 2, 3, 1), jnp.int8),
        jnp.zeros((2, 2, 3), jnp.int8),
        jnp.asarray(rewards),
        jnp.asarray(events),
        nothing,
        nothing,
        jnp.zeros((2, 3), jnp.int16),
    )
    result = {
        name: np.asarray(values).tolist()
        for name, values in playing.event_rates(config, turn).items()
    }
    assert result == {
        "reward_per_turn": pytest.approx([29 / 6, -7 / 6]),
        "wall_bumps": pytest.approx([1 / 6, 1 / 6]),
        "blocked": pytest.approx([1 / 6, 1 / 6]),
        "items_gem": pytest.approx([3 / 6, 0]),
        "items_bone": pytest.approx([0, 2 / 6]),
    }


# Epsilon.


@pytest.mark.parametrize(
    ("transitions", "expected"), [(0, 1.0), (400, 0.8), (1000, 0.5), (2000, 0.02), (10**9, 0.02)]
)
def test_linear_epsilon_falls_evenly_to_its_end(transitions: int, expected: float):
    schedule = {
        "kind": "linear",
        "start": 1.0,
        "end": 0.0 if transitions <= 1000 else 0.02,
        "over_transitions": 2000,
    }
    acting = probes.hunt(train={"turns": 2000, "acting": {"epsilon": schedule}}).train.acting
    assert float(epsilon_at(acting, jnp.int32(transitions), jnp.int32(0))) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize(
    ("episodes", "expected"), [(0, 1.0), (1, 0.999), (1000, 0.3677), (100_000, 0.1)]
)
def test_geometric_epsilon_falls_with_episodes(episodes: int, expected: float):
    schedule = {"kind": "geometric", "start": 1.0, "end": 0.1, "decay": 0.001}
    acting = probes.hunt(train={"acting": {"epsilon": schedule}}).train.acting
    assert float(epsilon_at(acting, jnp.int32(0), jnp.int32(episodes))) == pytest.approx(
        expected, abs=5e-5
    )


# Episodes that end in different turns.


def _last_of_two_or_three(state: Any) -> tuple[Any, Any]:
    return state.turn == 1 + probes.coin(state, 0), jnp.bool_(False)


UNEVEN = probes.build(
    2,
    lambda state, _: probes.shown(state.turn),
    lambda state, agent, _: (state.turn + 1) * (agent + 1),
    _last_of_two_or_three,
)


def test_returns_are_of_whole_episodes_whenever_their_envs_end():
    config = probes.config(UNEVEN, train={"turns_per_cycle": 4})
    state = jax.tree.map(lambda leaf: leaf[0], probes.fresh(config, UNEVEN))
    play = jax.jit(partial(playing.play, config, UNEVEN))
    play_state, sums, episodes = state.play_state, np.zeros((2, 16)), int(state.play_state.episodes)
    for _ in range(3):
        mean = np.asarray(play_state.episode_return)
        play_state, played, _ = play(state.params, play_state, jax.random.key(4))
        over = np.asarray(played.terminated)
        for turn in range(4):
            sums += np.asarray(played.rewards[turn])
            if over[turn].any():
                mean = sums[:, over[turn]].mean(1)
            sums[:, over[turn]] = 0
        episodes += over.sum()
        assert len(set(over.argmax(0).tolist())) > 1
        np.testing.assert_allclose(play_state.episode_return, mean)
        np.testing.assert_allclose(play_state.reward_sums, sums)
        assert int(play_state.episodes) == episodes


def test_the_first_return_and_the_episodes_are_those_of_the_prefill():
    config = probes.hunt()
    collected = probes.prefill(config, make_world(config.env.rules), jax.random.key(0))
    play_state = probes.fresh(config, make_world(config.env.rules), train_part=collected).play_state
    assert int(play_state.episodes[0]) == 2 * 4
    np.testing.assert_allclose(
        play_state.episode_return[0], collected.rewards[0].sum((0, 2)) / 8, rtol=1e-6
    )


# The replay.


@lru_cache
def spied() -> tuple[Any, list[tuple[int, np.ndarray]], list[Turn]]:
    """A ring after two cycles of acting, the stacks that agents saw, and the turns."""
    config, views = probes.hunt(), []
    world = make_world(config.env.rules)
    state = jax.tree.map(lambda leaf: leaf[0], probes.fresh(config, world))
    genuine = playing.epsilon_greedy_policy

    def spying(*arguments: Any) -> Callable[..., jax.Array]:
        policy = genuine(*arguments)

        def act(key: jax.Array, agent: jax.Array, stack: jax.Array, states: Any) -> jax.Array:
            jax.debug.callback(
                lambda item, all: views.append((int(item), np.array(all))),
                agent,
                stack,
                ordered=True,
            )
            return policy(key, agent, stack, states)

        return act

    stored, play_state, turns = state.ring, state.play_state, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(playing, "epsilon_greedy_policy", spying)
        play = jax.jit(partial(playing.play, config, world))
        for _ in range(3):
            play_state, played, _ = play(state.params, play_state, state.base_key)
            turns.append(played)
            stored = frames.write(stored, to_transitions(played))
        jax.effects_barrier()
    return stored, views, turns


def test_the_ring_holds_what_was_played_behind_the_prefill():
    stored, _, turns = spied()
    assert (int(stored.head), int(stored.written)) == (35, 35)
    for name, column in stored.data._asdict().items():
        played = np.concatenate([getattr(turn, name) for turn in turns])
        np.testing.assert_array_equal(column[20:35], played, err_msg=name)


def test_a_drawn_stack_is_bit_for_bit_what_the_agent_saw_when_it_acted():
    config, (stored, views, _) = probes.hunt(), spied()
    assert [agent for agent, _ in views] == [0, 1, 2] * 15
    starts = frames.valid_starts(stored, train.window(config))
    entries = frames.start_entries(stored, starts, jnp.arange(int(starts.total)))
    acted = np.asarray(entries)[np.asarray(entries) >= 20 * 4]
    slots, envs = acted // 4 - 20, acted % 4
    assert len(acted) == 15 * 4 - 4 - 4  # one turn was cut off, and one waits for its successor
    for agent in range(3):
        drawn = frames.gather_transitions(stored, agent, jnp.asarray(acted), train.window(config))
        stacks = np.stack([stack for item, stack in views if item == agent])
        np.testing.assert_array_equal(drawn.stack, stacks[slots, envs])
        np.testing.assert_array_equal(drawn.next_stack, stacks[slots + 1, envs])
