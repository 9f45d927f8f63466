"""The first half of a cycle: counts of turns, and a replay that gives back what agents saw."""

from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.envs.treasurehunt.turns import Turn
from quatrain.envs.treasurehunt.world import make_world
from quatrain.models.iqn import learn, train
from quatrain.models.iqn.collect import collect
from quatrain.models.iqn.compiled import PlayState, play_turns, to_transitions
from quatrain.models.iqn.learn import State
from quatrain.models.iqn.network import epsilon_at, explore
from quatrain.models.iqn.treasurehunt import event_rates
from quatrain.replay.frames.ring import Transitions, write
from quatrain.replay.frames.sampling import Batch, gather_transitions, start_entries, valid_starts
from tests.conftest import shapes_unchecked, small

CONFIG = small("iqn")


@lru_cache
def fresh() -> tuple[Transitions, State]:
    """A prefill, and an untrained learner that begins with it."""
    with shapes_unchecked():
        dataset = collect(CONFIG, 11)
        return dataset.train, train.init_state(CONFIG, dataset, 0)


def test_event_rates_are_shares_of_agent_steps_without_final_turns():
    gem, bone = ({"name": name, "value": 1.0, "weight": 1.0} for name in ("gem", "bone"))
    config = small("iqn", env={"entities": [gem, bone]})
    # (turn, agent, env)
    shares = [[[1, 0, -1], [2, 2, -2]], [[1, 1, -2], [0, 0, -1]]]
    events = jnp.array([*shares, np.full((2, 3), 2)], jnp.int8)
    final = jnp.broadcast_to(jnp.array([[False], [False], [True]]), (3, 3))
    rewards = jnp.where(final[:, None], 0, 10.0 * events)
    fields = {"rewards": rewards, "events": events, "final": final}
    turn = Turn(*[None] * len(Turn._fields))._replace(**fields)
    rates = event_rates(config, turn)
    assert {name: (6 * values).tolist() for name, values in rates.items()} == {
        "reward_per_turn": [0, pytest.approx(10)],
        "wall_bumps": [1, 1],
        "blocked": [1, 1],
        "items_gem": [3, 0],
        "items_bone": [0, 2],
    }


# Epsilon.


LINEAR = {"kind": "linear", "start": 1.0, "end": 0.02, "over_transitions": 250}
GEOMETRIC = {"kind": "geometric", "start": 1.0, "end": 0.1, "decay": 0.001}


@pytest.mark.parametrize(
    ("schedule", "transitions", "episodes", "expected"),
    [
        (LINEAR, 0, 9, 1.0),
        (LINEAR, 50, 9, 0.804),
        (LINEAR, 10**9, 9, 0.02),
        (GEOMETRIC, 9, 1, 0.999),
        (GEOMETRIC, 9, 1000, 0.3677),
        (GEOMETRIC, 9, 100_000, 0.1),
    ],
)
def test_epsilon_falls_with_transitions_or_episodes(
    schedule: dict[str, Any], transitions: int, episodes: int, expected: float
):
    acting = small("iqn", train={"acting": {"epsilon": schedule}}).train.acting
    result = float(epsilon_at(acting, jnp.int32(transitions), jnp.int32(episodes)))
    assert result == pytest.approx(expected, abs=5e-5)


# The replay.


@lru_cache
def spied() -> tuple[Any, list[tuple[int, np.ndarray]], list[Turn], PlayState]:
    """A ring after two cycles of acting, the stacks that agents saw, the turns, and their sums."""
    views: list[tuple[int, np.ndarray]] = []
    world = make_world(CONFIG.env)
    state = jax.tree.map(lambda leaf: leaf[0], fresh()[1])

    def saw(agent: Any, stack: Any) -> None:
        views.append((int(agent), np.array(stack)))

    def spying(*counts: Any) -> Any:
        policy, epsilon = explore(CONFIG, state.params, *counts)

        def act(key: jax.Array, agent: jax.Array, stack: jax.Array, states: Any) -> jax.Array:
            jax.debug.callback(saw, agent, stack, ordered=True)
            return policy(key, agent, stack, states)

        return act, epsilon

    stored, play_state, turns = state.ring, state.play_state, []
    play = jax.jit(partial(play_turns, CONFIG, world, spying))
    for _ in range(2):
        play_state, played, _ = play(play_state, state.base_key)
        turns.append(played)
        stored = write(stored, to_transitions(played))
    jax.effects_barrier()
    return stored, views, turns, play_state


def test_the_ring_holds_what_was_played_behind_the_prefill_and_returns_are_of_whole_episodes():
    stored, _, turns, play_state = spied()
    assert (int(stored.head), int(stored.written)) == (40, 40)
    for name, column in stored.data._asdict().items():
        played = np.concatenate([getattr(turn, name) for turn in turns])
        np.testing.assert_array_equal(column[20:40], played, err_msg=name)
    # Of each env an episode of eleven turns has ended, after two in the prefill, and one goes on.
    assert int(play_state.episodes) == 3 * 4
    rewards = np.concatenate([turn.rewards for turn in turns])
    returns = rewards[:11].sum(0).mean(1)
    np.testing.assert_allclose(play_state.episode_return, returns, rtol=1e-6)
    np.testing.assert_allclose(play_state.reward_sums, rewards[11:].sum(0), rtol=1e-6)


def test_a_drawn_stack_is_bit_for_bit_what_the_agent_saw_when_it_acted():
    stored, views, *_ = spied()
    assert [agent for agent, _ in views] == [0, 1] * 20
    window = learn.window(CONFIG)
    total = 40 * 4 - 4 * 4  # three turns of each env are final, and nothing follows the last one

    @jax.jit
    def drawn_by(agent: jax.Array) -> tuple[jax.Array, jax.Array, Batch]:
        starts = valid_starts(stored, window)
        entries = start_entries(stored, starts, jnp.arange(total))
        return starts.total, entries, gather_transitions(stored, agent, entries, window)

    for agent in range(2):
        count, entries, drawn = jax.device_get(drawn_by(jnp.int32(agent)))
        assert count == total
        acted = entries >= 20 * 4
        slots, envs = entries[acted] // 4 - 20, entries[acted] % 4
        stacks = np.stack([stack for item, stack in views if item == agent])
        np.testing.assert_array_equal(drawn.stack[acted], stacks[slots, envs])
        np.testing.assert_array_equal(drawn.next_stack[acted], stacks[slots + 1, envs])
