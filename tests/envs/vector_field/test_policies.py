"""Open-loop actions: formulas, how long they are held, and what is drawn."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from quatrain.envs.vector_field.policies import act, init_policy_state
from tests.conftest import shapes_unchecked
from tests.torch_numbers import seeded

ROWS, SIZE, BOUND, TRANSITIONS = 7, 3, 0.4, 600
HOLD = {"random": (1, 1), "step": (50, 50), "prbs": (3, 19)}


def actions_of(arm: str, transitions: int = TRANSITIONS, size: int = SIZE) -> Tensor:
    """Returns actions [transition, env, action] of a run."""
    source = seeded()
    state, result = init_policy_state(ROWS, size, source), []
    with shapes_unchecked():
        for _ in range(transitions):
            state = act(arm, BOUND, HOLD[arm], state, source)
            result.append(state.action)
    return torch.stack(result)


def holds(actions: Tensor) -> list[list[int]]:
    """Returns for how many transitions each action was repeated, by env, without the last."""
    result = []
    for row in range(ROWS):
        changes = (actions[1:, row] != actions[:-1, row]).any(1).nonzero()[:, 0] + 1
        edges = [0, *changes.tolist()]
        result.append([end - start for start, end in pairwise(edges)])
    return result


def test_random_actions_are_uniform_in_the_box_and_independent():
    actions = actions_of("random", 2000).double()
    assert actions.abs().max() <= BOUND
    share = (actions.flatten() + BOUND) / (2 * BOUND)
    assert chisquare(torch.histc(share, 10, 0, 1)).pvalue > 1e-3
    series = actions.flatten(1).T
    assert (torch.corrcoef(series) - torch.eye(len(series))).abs().amax() < 0.1
    later = (series[:, 1:] * series[:, :-1]).mean(1) / series.square().mean(1)
    assert later.abs().amax() < 0.1


def test_a_step_action_is_repeated_and_then_redrawn():
    actions = actions_of("step")
    assert actions.abs().max() <= BOUND
    pieces = actions.unflatten(0, (-1, 50))
    assert torch.equal(pieces, pieces[:, :1].expand_as(pieces))
    draws = {tuple(single) for single in pieces[:, 0].flatten(0, 1).tolist()}
    assert len(draws) == TRANSITIONS // 50 * ROWS


def test_prbs_holds_its_signs_for_each_length_alike():
    """A run that is drawn again with the same signs looks longer: with 20 dimensions that does not
    happen.
    """
    actions = actions_of("prbs", 4000, size=20)
    assert (actions.abs() == BOUND).all()
    assert actions.sign().mean((0, 1)).abs().max() < 0.1  # four standard errors
    lengths = holds(actions)
    assert len(set(map(tuple, lengths))) == ROWS  # envs change independently
    counts = np.bincount(np.concatenate(lengths), minlength=25)
    assert counts[:3].sum() == counts[20:].sum() == 0
    assert chisquare(counts[3:20]).pvalue > 1e-3


@pytest.mark.parametrize("arm", ["random", "step", "prbs"])
def test_each_transition_draws_the_same_count_of_numbers(arm):
    """Arms that are seeded alike stay paired, and a run that is cut off goes on as it would
    have.
    """
    sources = [seeded(5), seeded(5)]
    fresh = init_policy_state(ROWS, SIZE, seeded())
    state = fresh._replace(left=torch.arange(ROWS), action=torch.full((ROWS, SIZE), 0.1))
    for before, source in zip((fresh, state), sources, strict=True):
        after = act(arm, BOUND, HOLD[arm], before, source)
        assert (after.action.shape, after.action.dtype) == ((ROWS, SIZE), torch.float32)
    assert torch.equal(sources[0].get_state(), sources[1].get_state())
