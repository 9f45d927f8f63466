"""Actions that do not look: formulas, how long they are held, and what is drawn."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from quatrain.envs.vector_field.policies import PolicySpec, PolicyState, act, init_policy_state

ROWS, SIZE, BOUND, DT, TRANSITIONS = 7, 3, 0.4, 0.05, 600
ARMS = ("random", "step", "prbs", "chirp", "off")


SPEC = PolicySpec(BOUND, DT, TRANSITIONS, step_hold=50, prbs_hold=(3, 19), chirp=(0.05, 2.0))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def actions_of(arm: str, transitions: int = TRANSITIONS) -> Tensor:
    """Returns actions [transition, env, action] of a run."""
    source = generator()
    state, result = init_policy_state(ROWS, SIZE, source), []
    for transition in range(transitions):
        state = act(arm, SPEC, state, transition, source)
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


@pytest.mark.parametrize("arm", ARMS)
def test_actions_stay_in_the_box(arm):
    actions = actions_of(arm)
    assert actions.shape == (TRANSITIONS, ROWS, SIZE)
    assert actions.dtype == torch.float32
    assert actions.abs().amax() <= BOUND


def test_random_actions_are_uniform_and_independent():
    actions = actions_of("random", 2000).double()
    share = (actions.flatten() + BOUND) / (2 * BOUND)
    counts = torch.histc(share, 10, 0, 1)
    assert (
        float(((counts - len(share) / 10).square() / (len(share) / 10)).sum()) < 27.9
    )  # chi-square, p = .001
    series = actions.flatten(1).T
    assert (torch.corrcoef(series) - torch.eye(len(series))).abs().amax() < 0.1
    later = (series[:, 1:] * series[:, :-1]).mean(1) / series.square().mean(1)
    assert later.abs().amax() < 0.1


def test_a_step_action_is_repeated_and_then_redrawn():
    actions = actions_of("step")
    pieces = actions.unflatten(0, (-1, 50))
    assert torch.equal(pieces, pieces[:, :1].expand_as(pieces))
    assert (
        len({tuple(single) for single in pieces[:, 0].flatten(0, 1).tolist()})
        == TRANSITIONS // 50 * ROWS
    )


def test_prbs_is_at_corners_of_the_box():
    actions = actions_of("prbs")
    assert (actions.abs() == BOUND).all()
    assert abs(float(actions.sign().mean())) < 0.1


def test_prbs_holds_its_signs_for_each_length_alike():
    """A run that is drawn again with the same signs looks longer: with 20 dimensions that does not
    happen.
    """
    source = generator()
    state, lengths = init_policy_state(ROWS, 20, source), []
    stayed = torch.zeros(ROWS)
    before = torch.zeros(ROWS, 20)
    for transition in range(4000):
        state = act("prbs", SPEC, state, transition, source)
        changed = (state.action != before).any(1)
        if transition:
            lengths += stayed[changed].tolist()
        stayed, before = torch.where(changed, 1, stayed + 1), state.action
    counts = torch.bincount(torch.tensor(lengths).long(), minlength=25)
    assert counts[:3].sum() == 0
    assert counts[20:].sum() == 0
    expected = counts.sum() / 17
    assert (
        float(((counts[3:20] - expected).square() / expected).sum()) < 39.3
    )  # chi-square, 16 degrees, p = .001


def test_prbs_draws_all_signs_at_once():
    """Dimensions change together, and each keeps its sign in half of the changes."""
    actions = actions_of("prbs", 3000)
    for row, lengths in enumerate(holds(actions)):
        assert min(lengths) >= 3
        ends = torch.tensor(lengths).cumsum(0)
        kept = (actions[ends, row] == actions[ends - 1, row]).float().mean(0)
        # Of 2^3 corners one is the same as before, and is not seen as a change: 3 of 7 others keep
        # a given sign.
        assert (kept - 3 / 7).abs().amax() < 0.12


def test_envs_change_actions_independently():
    starts = [tuple(lengths) for lengths in holds(actions_of("prbs"))]
    assert len(set(starts)) == ROWS


def test_a_chirp_follows_its_formula():
    actions, state = actions_of("chirp"), init_policy_state(ROWS, SIZE, generator())
    whole = TRANSITIONS * DT
    for transition in (0, 1, 17, 333, TRANSITIONS - 1):
        time = transition * DT
        turned = 2 * math.pi * (0.05 * time + (2.0 - 0.05) * time**2 / (2 * whole))
        expected = BOUND * torch.sin(turned + state.phase.double())
        torch.testing.assert_close(actions[transition].double(), expected, rtol=0, atol=1e-5)


def test_a_chirp_gets_as_fast_as_it_should():
    """By its crossings of 0: f0 T at first, 2 f T a time T in all."""
    signs = actions_of("chirp").sign()
    crossings = (signs[1:] != signs[:-1]).float()
    whole = TRANSITIONS * DT
    torch.testing.assert_close(
        crossings.sum(0), torch.full((ROWS, SIZE), (0.05 + 2.0) * whole), atol=1.01, rtol=0
    )
    last = crossings[-100:].sum(0) / (100 * DT)
    torch.testing.assert_close(last, torch.full((ROWS, SIZE), 2 * 1.84), atol=0.3, rtol=0)


def test_phases_differ_by_env_and_dimension():
    phases = init_policy_state(ROWS, SIZE, generator()).phase
    assert len(set(phases.flatten().tolist())) == ROWS * SIZE
    assert ((phases >= 0) & (phases < 2 * math.pi)).all()


def test_off_does_nothing():
    assert not actions_of("off").any()


@pytest.mark.parametrize("arm", ARMS)
def test_each_transition_draws_the_same_count_of_numbers(arm):
    """Arms that are seeded alike stay paired, and a run that is cut off goes on as it would
    have.
    """
    sources = [generator(5), generator(5)]
    fresh = init_policy_state(ROWS, SIZE, generator())
    state = fresh._replace(left=torch.arange(ROWS), action=torch.full((ROWS, SIZE), 0.1))
    for before, source in zip((fresh, state), sources, strict=True):
        act(arm, SPEC, before, 9, source)
    assert torch.equal(sources[0].get_state(), sources[1].get_state())


@pytest.mark.parametrize("arm", ["step", "prbs"])
def test_a_repeated_action_stays_until_its_time_is_over(arm):
    state = PolicyState(
        torch.full((ROWS, SIZE), 0.1), torch.tensor([3, 0, 1, 0, 2, 5, 0]), torch.zeros(ROWS, SIZE)
    )
    after = act(arm, SPEC, state, 0, generator())
    stays = state.left > 0
    assert (after.action[stays] == 0.1).all()
    assert (after.action[~stays] != 0.1).any(1).all()
    assert torch.equal(after.left[stays], state.left[stays] - 1)
    assert (after.left[~stays] >= 2).all()


def test_an_unknown_policy_raises():
    with pytest.raises(
        ValueError, match="arm 'active' is no policy; known: random, step, prbs, chirp, off"
    ):
        act("active", SPEC, init_policy_state(ROWS, SIZE, generator()), 0, generator())
