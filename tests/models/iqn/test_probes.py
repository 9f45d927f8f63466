"""In worlds whose values are known the learner finds them: each world asks one thing of it."""

from functools import lru_cache, partial

import jax
import numpy as np
import pytest

from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.train import State, train_in_world
from tests import probes
from tests.probes import (
    CUE,
    CUT,
    ERRANDS,
    FIRST,
    FRAME,
    HEADS,
    MIDPOINTS,
    ONE_TURN,
    SIDES,
    TAILS,
    TASKS,
    THREE_TURNS,
)

one_turn = partial(probes.config, ONE_TURN)
three_turns = partial(probes.config, THREE_TURNS)


@lru_cache
def solved_one_turn() -> tuple[IqnConfig, State]:
    config = one_turn()
    return config, probes.learned(config, ONE_TURN, probes.fresh(config, ONE_TURN))


@lru_cache
def met_in_three_turns() -> probes.Transitions:
    return probes.prefill(three_turns(), THREE_TURNS, jax.random.key(0))


@lru_cache
def unlearned(frames: int) -> State:
    config = three_turns(network={"frames": frames})
    return probes.fresh(config, THREE_TURNS, train_part=met_in_three_turns())


@lru_cache
def solved_three_turns(n_step: int = 1, frames: int = 1) -> tuple[IqnConfig, State]:
    config = three_turns(network={"frames": frames}, train={"loss": {"n_step": n_step}})
    return config, probes.learned(config, THREE_TURNS, unlearned(frames))


def task(name: str) -> np.ndarray:
    """Z of a task with tails and with heads: (side, quantile, action)."""
    return probes.quantiles(*solved_one_turn(), TASKS.index(name), SIDES)


def frame(*places: int) -> np.ndarray:
    views = np.zeros(FRAME, np.int8)
    views[list(places)] = 1
    return views


def test_a_reward_of_one_and_the_end_is_worth_one():
    np.testing.assert_allclose(task("always"), 1, atol=0.05)


def test_a_reward_that_depends_on_what_is_seen():
    np.testing.assert_allclose(task("seen")[TAILS], -1, atol=0.1)
    np.testing.assert_allclose(task("seen")[HEADS], 1, atol=0.1)


@pytest.mark.parametrize("name", ["done", "seen and done"])
def test_a_reward_that_depends_on_what_is_done(name: str):
    expected = np.array(probes.PAYOFFS[name], float)
    np.testing.assert_allclose(task(name).mean(1), expected, atol=0.1)
    assert task(name).mean(1).argmax(-1).tolist() == expected.argmax(-1).tolist()


def test_agents_with_opposite_rewards_learn_opposite_actions():
    assert [task(name).mean((0, 1)).argmax() for name in ("upward", "rightward")] == [0, 3]
    assert [task(name).mean((0, 1)).argmin() for name in ("upward", "rightward")] == [3, 0]


def test_the_quantiles_of_a_coin_are_its_expectiles():
    np.testing.assert_allclose(task("lottery").mean((0, 2)), MIDPOINTS, atol=0.06)
    np.testing.assert_allclose(
        task("lottery"), np.broadcast_to(MIDPOINTS[:, None], (2, 16, 4)), atol=0.2
    )


def test_agents_do_not_learn_from_the_rewards_of_others():
    config = one_turn()
    state, altered = probes.fresh(config, ONE_TURN), TASKS.index("done")
    rewards = state.ring.data.rewards.at[:, :, altered].multiply(-3.0)
    other = state._replace(ring=state.ring._replace(data=state.ring.data._replace(rewards=rewards)))
    ends = [next(train_in_world(config, ONE_TURN, item)).state for item in (state, other)]
    for left, right in zip(
        *(jax.tree.leaves((end.params, end.optimizer)) for end in ends), strict=True
    ):
        same = [np.array_equal(left[0, agent], right[0, agent]) for agent in range(len(TASKS))]
        expected = [agent != altered for agent in range(len(TASKS))]
        assert same == expected or left.ndim == 2  # counts of updates are the same for all


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_a_cut_episode_is_worth_what_it_would_have_gone_on_to_pay(n_step: int):
    result = probes.quantiles(*solved_three_turns(n_step), ERRANDS.index("paid"), frame(CUT))
    np.testing.assert_allclose(result, 2.0, atol=0.06)


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_an_episode_that_ends_is_worth_what_is_left_to_pay(n_step: int):
    turns = np.stack([frame(FIRST + turn) for turn in range(3)])
    result = probes.quantiles(*solved_three_turns(n_step), ERRANDS.index("paid"), turns)
    np.testing.assert_allclose(result.mean((1, 2)), [1.75, 1.5, 1.0], atol=0.06)


@pytest.mark.parametrize("n_step", [1, 2, 3])
def test_a_late_reward_is_discounted_once_for_each_turn(n_step: int):
    turns = np.stack([frame(FIRST + turn) for turn in range(3)])
    result = probes.quantiles(*solved_three_turns(n_step), ERRANDS.index("delayed"), turns)
    np.testing.assert_allclose(result.mean((1, 2)), [0.25, 0.5, 1.0], atol=0.06)


def test_a_cue_is_remembered_over_three_frames():
    stacks = np.stack(
        [[frame(FIRST, CUE + cue), frame(FIRST + 1), frame(FIRST + 2)] for cue in range(2)]
    )
    result = probes.quantiles(*solved_three_turns(frames=3), ERRANDS.index("cued"), stacks).mean(1)
    np.testing.assert_allclose(result, [[1, 0, 0, 0], [0, 1, 0, 0]], atol=0.12)


def test_with_one_frame_the_cue_is_forgotten():
    result = probes.quantiles(*solved_three_turns(), ERRANDS.index("cued"), frame(FIRST + 2))[
        0
    ].mean(0)
    np.testing.assert_allclose(result, [0.5, 0.5, 0, 0], atol=0.12)
