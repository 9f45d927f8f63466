"""The JAX CartPole is gymnasium's, and the learner on it learns."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from benchmarks.harness import Measured
from benchmarks.peers import loop
from benchmarks.peers.cartpole import dqn, sides, world
from benchmarks.peers.cartpole.dqn import Layer, Schedule

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


def standing(observed, steps):
    return world.Worlds(jnp.asarray(observed, jnp.float32), jnp.asarray(steps, jnp.int32))


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


def test_an_episode_is_cut_off_where_gymnasium_cuts_it_off():
    theirs = gymnasium.make("CartPole-v1")
    theirs.reset(seed=0)
    worlds = world.reset(jnp.zeros((1, 4)))
    for count in range(1, world.MOST_STEPS + 1):
        theirs.unwrapped.state = np.zeros(4)
        _, _, terminated, truncated, _ = theirs.step(count % 2)
        ours = step(
            standing(np.zeros((1, 4)), worlds.step), jnp.array([count % 2]), jnp.zeros((1, 4))
        )
        assert (bool(ours.terminated[0]), bool(ours.truncated[0])) == (terminated, truncated)
        worlds = ours.worlds
    assert truncated
    assert int(worlds.step[0]) == 0


@pytest.mark.parametrize(("column", "limit"), [(0, world.TRACK), (2, world.LEANING)])
@pytest.mark.parametrize("side", [-1, 1])
def test_an_episode_ends_beyond_the_limits(column, limit, side):
    observed = np.zeros((2, 4), np.float32)
    observed[:, column] = side * limit * np.array([0.999, 1.001])
    ended = step(standing(observed, [4, 4]), jnp.array([0, 0]), jnp.zeros((2, 4))).terminated
    np.testing.assert_array_equal(ended, [False, True])


def test_after_an_end_the_world_stands_at_its_new_start_and_the_last_observation_is_told():
    observed = np.array([[2.5, 1, 0, 0], [0.1, 1, 0, 0]], np.float32)
    starts = jnp.full((2, 4), 0.03)
    ours = step(standing(observed, [7, 7]), jnp.array([1, 1]), starts)
    np.testing.assert_allclose(ours.obs[:, 0], observed[:, 0] + 0.02, rtol=1e-6)
    np.testing.assert_array_equal(ours.worlds.obs[0], starts[0])
    np.testing.assert_array_equal(ours.worlds.obs[1], ours.obs[1])
    np.testing.assert_array_equal(ours.worlds.step, [0, 8])


def test_the_gradient_step_is_adams_on_each_parameter():
    """All parameters in one vector must come out as they do apart, by an own loss."""
    state = dqn.warmed_up(SMALL, jax.random.key(0))
    batch = dqn.draw(SMALL, state.ring, jnp.arange(7, dtype=jnp.uint32))
    changed, adam = dqn.learnt(SMALL, state, batch)

    def loss(layers: list[Layer]) -> jax.Array:
        def value(observed: jax.Array) -> jax.Array:
            return (
                layers[1].weight @ jax.nn.relu(layers[0].weight @ observed + layers[0].bias)
                + layers[1].bias
            )

        fixed = jax.lax.stop_gradient(
            jax.vmap(value)(batch.next_stack).max(axis=1)
        )  # params are the target's still
        selected = jax.vmap(value)(batch.stack)[jnp.arange(7), batch.action.astype(int)]
        return 0.5 * jnp.mean((batch.returns + batch.bootstrap * fixed - selected) ** 2)

    slopes = jax.grad(loss)(state.params)
    expected = 0.1 * ravel_pytree(slopes)[0]  # the step itself has only the gradient's sign
    np.testing.assert_allclose(adam[0].mu, expected, rtol=1e-4, atol=1e-7)
    for before, slope, after in zip(
        jax.tree.leaves(state.params),
        jax.tree.leaves(slopes),
        jax.tree.leaves(changed),
        strict=True,
    ):
        expected = before - SMALL.learning_rate * slope / (
            jnp.abs(slope) + 1e-8
        )  # Adam's first step
        np.testing.assert_allclose(after, expected, atol=2e-5)


def test_stored_transitions_are_steps_of_the_world():
    state = dqn.train(SMALL, dqn.warmed_up(SMALL, jax.random.key(0)), jax.random.key(1), 40)
    batch = dqn.draw(SMALL, state.ring, jnp.arange(60, dtype=jnp.uint32))
    led = world.step(
        standing(batch.stack, np.zeros(60)), batch.action.astype(jnp.int32), jnp.zeros((60, 4))
    )
    goes_on = np.asarray(batch.bootstrap) > 0
    np.testing.assert_array_equal(goes_on, ~np.asarray(led.terminated))
    np.testing.assert_allclose(batch.next_stack[goes_on], led.obs[goes_on], atol=1e-6)
    assert 0 < goes_on.sum() < 60
    np.testing.assert_array_equal(batch.returns, np.ones(60))


def test_the_target_stays_between_its_copies():
    state = dqn.warmed_up(SMALL, jax.random.key(0))  # 10 turns; the target is copied every 2nd
    first = dqn.train(SMALL, state, jax.random.key(1), 1)
    kept = np.asarray(first.target_params[0].weight)
    np.testing.assert_array_equal(kept, first.params[0].weight)
    second = dqn.train(SMALL, first, jax.random.key(1), 1)
    np.testing.assert_array_equal(second.target_params[0].weight, kept)
    assert not np.array_equal(second.params[0].weight, kept)


@pytest.mark.full
def test_it_learns_to_hold_the_pole():
    side = sides.ours(Schedule())
    before = sides.greedy_return(side.act)
    assert before < 60
    assert sides.refuse_unlearnt("ours", side, 2_000) > sides.LEARNT


def test_a_side_that_does_not_learn_is_refused():
    idle = sides.Side(lambda _: None, lambda observed: np.zeros(len(observed), int))
    with pytest.raises(sides.NotTheSame, match=r"idle: a greedy return of [0-9]+ after"):
        sides.refuse_unlearnt("idle", idle, 10_000)


def test_each_goal_stands_in_a_row_with_what_it_is_against():
    names = {"ours": 1.0, "rejax": 3.0, "stable-baselines3": 40.0, "by call": 3.0}
    names |= {f"full {capacity}": 1.0 for capacity in loop.CAPACITIES}
    rows = loop.rows_of({name: Measured(np.full(3, each)) for name, each in names.items()})
    assert {row.against: (row.goal.number, row.goal_reached) for row in rows} == {
        "rejax": (2.5, True),
        "stable-baselines3": (15, True),
        "10,000 transitions": (0.8, True),
    }
