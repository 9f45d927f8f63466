"""The JAX CartPole is gymnasium's, and the learner on it learns."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from benchmarks.harness import Measured
from benchmarks.peers import loop
from benchmarks.peers.cartpole import dqn, world
from benchmarks.peers.cartpole.dqn import Layer, Schedule

pytestmark = pytest.mark.full
SMALL = Schedule(
    environments=3,
    capacity=90,
    warm_up=30,
    batch_size=7,
    hidden=(5,),
    target_every=6,
    epsilon_over=60,
)
step = jax.jit(world.step)
draw = jax.jit(dqn.draw, static_argnums=0)


def standing(observed, steps):
    return world.Worlds(jnp.asarray(observed, jnp.float32), jnp.asarray(steps, jnp.int32))


def trained(turns):
    """After 10 random turns in 3 worlds, and so many that train."""
    return dqn.train(SMALL, dqn.warmed_up(SMALL, jax.random.key(0)), jax.random.key(1), turns)


def test_random_episodes_are_those_of_gymnasium():
    theirs, rng = gymnasium.make("CartPole-v1"), np.random.default_rng(0)
    for episode in range(30):
        observed, _ = theirs.reset(seed=episode)
        worlds, ended, steps = world.reset(jnp.asarray(observed)[None]), False, 0
        while not ended:
            action = int(rng.integers(2))
            observed, reward, terminated, truncated, _ = theirs.step(action)
            ours = step(worlds, jnp.array([action]), jnp.zeros((1, 4)))
            np.testing.assert_allclose(ours.obs[0], observed, atol=1e-5)
            result = (float(ours.rewards[0]), bool(ours.terminated[0]), bool(ours.truncated[0]))
            assert result == (reward, terminated, truncated)
            worlds, ended, steps = ours.worlds, terminated or truncated, steps + 1
        assert steps > 5


@pytest.mark.parametrize(("column", "limit"), [(0, world.TRACK), (2, world.LEANING)])
def test_an_episode_ends_beyond_the_limits_and_is_cut_off_as_gymnasium_does(column, limit):
    observed = np.zeros((5, 4), np.float32)
    observed[:4, column] = limit * np.array([0.999, 1.001, -0.999, -1.001])
    most = gymnasium.spec("CartPole-v1").max_episode_steps
    ours = step(standing(observed, [most - 2] * 4 + [most - 1]), np.zeros(5, int), np.zeros((5, 4)))
    assert ours.terminated.tolist() == [False, True, False, True, False]
    assert ours.truncated.tolist() == [False, False, False, False, True]


def test_after_an_end_the_world_stands_at_its_new_start_and_the_last_observation_is_told():
    observed = np.array([[2.5, 1, 0, 0], [0.1, 1, 0, 0]], np.float32)
    starts = jnp.full((2, 4), 0.03)
    ours = step(standing(observed, [7, 7]), jnp.array([1, 1]), starts)
    np.testing.assert_allclose(ours.obs[:, 0], observed[:, 0] + 0.02, rtol=1e-6)
    np.testing.assert_array_equal(ours.worlds.obs[0], starts[0])
    np.testing.assert_array_equal(ours.worlds.obs[1], ours.obs[1])
    np.testing.assert_array_equal(ours.worlds.step, [0, 8])


def test_a_turn_learns_by_adam_on_each_parameter():
    """All parameters in one vector must come out as they do apart, by an own loss."""
    state = trained(0)
    batch = draw(SMALL, state.ring, jnp.arange(7, dtype=jnp.uint32))
    changed, adam = jax.jit(dqn.learnt, static_argnums=0)(SMALL, state, batch)

    @jax.jit
    @jax.grad
    def slopes_of(layers: list[Layer]) -> jax.Array:
        first, second = layers
        hidden = [
            jax.nn.relu(stack @ first.weight.T + first.bias)
            for stack in (batch.stack, batch.next_stack)
        ]
        value, following = (units @ second.weight.T + second.bias for units in hidden)
        target = batch.returns + batch.bootstrap * jax.lax.stop_gradient(following).max(1)
        selected = value[jnp.arange(7), batch.action.astype(int)]
        return 0.5 * jnp.mean((target - selected) ** 2)

    slopes = slopes_of(state.params)
    expected = 0.1 * ravel_pytree(slopes)[0]  # the step itself has only the gradient's sign
    np.testing.assert_allclose(adam[0].mu, expected, rtol=1e-4, atol=1e-7)
    for old, slope, new in zip(*map(jax.tree.leaves, (state.params, slopes, changed)), strict=True):
        expected = old - SMALL.learning_rate * slope / (jnp.abs(slope) + 1e-8)  # Adam's first step
        np.testing.assert_allclose(new, expected, atol=2e-5)


def test_stored_transitions_are_steps_of_the_world_and_the_target_stays_between_its_copies():
    first, second = trained(1), trained(2)  # the target is copied in every second turn
    np.testing.assert_array_equal(first.target_params[0].weight, first.params[0].weight)
    np.testing.assert_array_equal(second.target_params[0].weight, first.params[0].weight)
    assert not np.array_equal(second.params[0].weight, first.params[0].weight)
    batch = draw(SMALL, trained(40).ring, jnp.arange(60, dtype=jnp.uint32))
    led = step(standing(batch.stack, np.zeros(60)), batch.action.astype(int), np.zeros((60, 4)))
    goes_on = np.asarray(batch.bootstrap) > 0
    np.testing.assert_array_equal(goes_on, ~np.asarray(led.terminated))
    np.testing.assert_allclose(batch.next_stack[goes_on], led.obs[goes_on], atol=1e-6)
    assert 0 < goes_on.sum() < 60
    np.testing.assert_array_equal(batch.returns, np.ones(60))


def test_it_learns_to_hold_the_pole():
    side = loop.ours(Schedule())
    before = loop.greedy_return(side.act)
    assert before < 60
    assert loop.refuse_unlearnt("ours", side, 2_000) > loop.LEARNT


def test_a_side_that_does_not_learn_is_refused():
    idle = loop.Side(lambda _: None, lambda observed: np.zeros(len(observed), int))
    with pytest.raises(loop.NotComparable, match=r"idle: a greedy return of [0-9]+ after"):
        loop.refuse_unlearnt("idle", idle, 10_000)


def test_each_goal_stands_in_a_row_with_what_it_is_against():
    names = {"ours": 1.0, "rejax": 3.0, "stable-baselines3": 40.0, "by call": 3.0}
    names |= {f"full {capacity}": 1.0 for capacity in loop.CAPACITIES}
    rows = loop.rows_of({name: Measured(np.full(3, each)) for name, each in names.items()})
    assert {row.against: (row.goal.number, row.goal_reached) for row in rows} == {
        "rejax": (2.5, True),
        "stable-baselines3": (15, True),
        "10,000 transitions": (0.8, True),
    }
