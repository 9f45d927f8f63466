"""In worlds whose values are known the learner finds them: each world asks one thing of it."""

from functools import lru_cache, partial

import numpy as np
import pytest

from quatrain.models.iqn.config import IqnConfig
from quatrain.models.iqn.learn import State
from tests import probes
from tests.conftest import shapes_unchecked
from tests.probes import (
    CUE,
    CUT,
    ERRANDS,
    FIRST,
    FRAME,
    MIDPOINTS,
    ONE_TURN,
    SIDES,
    TASKS,
    THREE_TURNS,
)

one_turn = partial(probes.config, ONE_TURN, train={"record_every": 100})
three_turns = partial(probes.config, THREE_TURNS)


@lru_cache
def solved_one_turn() -> tuple[IqnConfig, State]:
    config = one_turn()
    with shapes_unchecked():
        return config, probes.learned(config, ONE_TURN, probes.fresh(config, ONE_TURN))


@lru_cache
def solved_three_turns(n_step: int, frames: int) -> tuple[IqnConfig, State]:
    config = three_turns(network={"frames": frames}, train={"loss": {"n_step": n_step}})
    with shapes_unchecked():
        return config, probes.learned(config, THREE_TURNS, probes.fresh(config, THREE_TURNS))


def task(name: str) -> np.ndarray:
    """Z of a task with tails and with heads: (side, quantile, action)."""
    return probes.quantiles(*solved_one_turn(), TASKS.index(name), SIDES)


def frame(*places: int) -> np.ndarray:
    views = np.zeros(FRAME, np.int8)
    views[list(places)] = 1
    return views


ONE_IN_FOUR = 0.75 * np.log(3) - 0.5
"""Mean of the expectiles of a reward of 1 with probability 1/4."""
TURNS = [frame(FIRST + turn) for turn in range(3)]


def frame_stacks(episode: list[np.ndarray], frames: int) -> np.ndarray:
    """The stack in each turn of an episode, blank before its start."""
    past = [frame()] * (frames - 1) + episode
    return np.stack([past[turn : turn + frames] for turn in range(len(episode))])


def test_values_of_one_turn_are_the_payoffs_of_what_is_seen_and_done_by_each_agent():
    """Also of agents with opposite rewards."""
    for name in TASKS:
        if name != "lottery":
            expected = np.array(probes.PAYOFFS[name], float)
            np.testing.assert_allclose(task(name).mean(1), expected, atol=0.1, err_msg=name)


@pytest.mark.full
def test_the_quantiles_of_a_coin_are_its_expectiles():
    np.testing.assert_allclose(task("lottery").mean((0, 2)), MIDPOINTS, atol=0.06)
    expected = np.broadcast_to(MIDPOINTS[:, None], (2, 16, 4))
    np.testing.assert_allclose(task("lottery"), expected, atol=0.2)


@pytest.mark.full
@pytest.mark.parametrize(("n_step", "frames"), [(1, 1), (2, 3)])
def test_an_end_is_worth_what_is_left_and_a_cut_what_would_have_been_paid(n_step: int, frames: int):
    """A late reward is discounted once for each turn."""
    learned = solved_three_turns(n_step, frames)
    turns, cut = frame_stacks(TURNS, frames), frame_stacks([frame(CUT)] * 3, frames)
    paid = probes.quantiles(*learned, ERRANDS.index("paid"), turns).mean((1, 2))
    np.testing.assert_allclose(paid, [1.75, 1.5, 1.0], atol=0.06)
    delayed = probes.quantiles(*learned, ERRANDS.index("delayed"), turns).mean((1, 2))
    np.testing.assert_allclose(delayed, [0.25, 0.5, 1.0], atol=0.06)
    went_on = probes.quantiles(*learned, ERRANDS.index("paid"), cut).mean((1, 2))
    np.testing.assert_allclose(went_on, 2.0, atol=0.06)


def test_the_reward_of_a_truncated_last_turn_and_what_would_follow_it_are_learned():
    exploring = {"epsilon": {**probes.EPSILON, "over_transitions": 2000}}
    brief = {"turns": 60, "loss": {"n_step": 3}, "acting": exploring}
    config = probes.config(probes.LAPS, train=brief)
    with shapes_unchecked():
        state = probes.learned(config, probes.LAPS, probes.fresh(config, probes.LAPS))
    result = probes.quantiles(config, state, 0, np.stack(TURNS)).mean((1, 2))
    np.testing.assert_allclose(result, np.array([2, 4, 8]) / 7, atol=0.05)


@pytest.mark.full
def test_a_cue_is_remembered_over_three_frames_and_forgotten_with_one():
    stacks = [frame_stacks([frame(FIRST, CUE + cue), *TURNS[1:]], 3)[2] for cue in range(2)]
    learned = solved_three_turns(n_step=2, frames=3)
    result = probes.quantiles(*learned, ERRANDS.index("cued"), np.stack(stacks)).mean(1)
    np.testing.assert_allclose(result, [[1, 0, 0, 0], [0, 1, 0, 0]], atol=0.12)
    learned = solved_three_turns(n_step=1, frames=1)
    (result,) = probes.quantiles(*learned, ERRANDS.index("cued"), TURNS[2]).mean(1)
    np.testing.assert_allclose(result, [0.5, 0.5, 0, 0], atol=0.12)


@pytest.mark.full
@pytest.mark.parametrize(("n_step", "value"), [(1, 1.0), (3, ONE_IN_FOUR)])
def test_returns_over_several_turns_hold_what_was_done_in_place_of_the_best(
    n_step: int, value: float
):
    """Nothing corrects them for exploration: a random policy repeats the cue once in four times."""
    always = {"kind": "linear", "start": 1.0, "end": 1.0, "over_transitions": 1}
    learning = {"loss": {"n_step": n_step}, "acting": {"epsilon": always}}
    config = three_turns(network={"frames": 3}, train=learning)
    with shapes_unchecked():
        state = probes.learned(config, THREE_TURNS, probes.fresh(config, THREE_TURNS))
    first = [frame_stacks([frame(FIRST, CUE + cue)], 3)[0] for cue in range(2)]
    result = probes.quantiles(config, state, ERRANDS.index("cued"), np.stack(first))
    np.testing.assert_allclose(result.mean((1, 2)), value * probes.DISCOUNT**2, atol=0.04)
