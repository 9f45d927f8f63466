"""What a step does to colonies: by hand, at the limits, and whatever the batch."""

import math

import numpy as np
import pytest
import torch

from quatrain.envs.colony import dynamics
from quatrain.envs.colony.dynamics import Colonies, advance, select_leftmost
from quatrain.envs.colony.rules import EXTINCT, LEFT_DRIFT, OVERFLOW, RUNNING, SUCCESS, TIMEOUT
from quatrain.envs.colony.world import StepResult, start, step
from tests.colonies import colonies_of, flat_plate, steered, wandering, world

FLAT = world(flat_plate())
PI_6 = math.pi / 6


def row(*xs: float, y: float = 200.0) -> list[tuple[float, float]]:
    return [(x, y) for x in xs]


def stepped(
    cells: list[tuple[float, float]], action: tuple[float, ...], parents: list[int] | None = None
) -> StepResult:
    colonies = colonies_of(FLAT.rules, cells, parents=None if parents is None else [parents])
    return step(FLAT, colonies, torch.tensor([action]), torch.Generator())


def chain(n: int) -> Colonies:
    return colonies_of(FLAT.rules, row(*(10.0 + 0.1 * i for i in range(n))))


def sizes(n: int, ratio: float, steps: int) -> list[int]:
    colonies, result = chain(n), []
    for _ in range(steps):
        colonies = advance(FLAT, colonies, torch.tensor([[ratio, 0.5, 4.0, 0.05, 0.0]])).after
        result.append(int(colonies.n))
    return result


def test_step_a_by_hand():
    ended = stepped(row(50, 10, 20, 30, 40), (0.2, 5, 2, 0.5, 0), parents=[-1, 0, 1, 2, 1])
    assert ended.final.pos[0, :8, 0].tolist() == pytest.approx(
        [50, 20, 30, 40, 51.5, 21.5, 31.5, 41.5]
    )
    assert ended.final.parent[0, :9].tolist() == [-1, 0, 1, 0, 0, 1, 2, 3, -1]
    assert ended.final.pid[0, :9].tolist() == [0, 2, 3, 4, 5, 6, 7, 8, -1]
    assert ended.components[0].tolist() == pytest.approx(
        [0.0095993, -1, -0.0222222, 0, -1, 0], abs=1e-6
    )
    assert ended.reward.item() == pytest.approx(-0.1751178, abs=1e-6)


def test_step_b_by_hand():
    ended = stepped(row(10, 20, 30, 40), (0.5, 15, 0.5, 0.5, PI_6))
    expected = [(30, 200), (40, 200), (40.82532, 206.25), (50.82532, 206.25)]
    np.testing.assert_allclose(ended.final.pos[0, :4], expected, atol=1e-4)
    assert ended.final.parent[0, :4].tolist() == [-1, 0, 0, 1]
    assert ended.components[0].tolist() == pytest.approx(
        [0.0257307, -1, -0.1, -0.00024414, -1, 0], abs=1e-6
    )
    assert ended.reward.item() == pytest.approx(-0.0177912, abs=1e-6)


def test_first_step_component_corrects_the_distance_component():
    weighted = (("distance", 1.0), ("first_step", 1.0))
    some = world(flat_plate(), reward=weighted)
    colonies, action = (
        colonies_of(some.rules, row(50, 10, 20, 30, 40)),
        torch.tensor([[0.2, 5.0, 2.0, 0.5, 0.0]]),
    )
    first = step(some, colonies, action, torch.Generator())
    assert first.reward.item() == pytest.approx(
        -(599 - 35.75) / 599
    )  # the mean x after step A is 35.75
    second = step(some, first.colonies, action, torch.Generator())
    moved = (second.final.centroid - first.final.centroid)[0, 0].item()
    assert second.components[0].tolist() == pytest.approx([5 * moved / 599, 0])


@pytest.mark.parametrize(
    ("gamma", "alpha", "noise", "intensity", "length"),
    [(5, 2, 0.5, 4, 4.5), (15, 0.5, 0.5, 1, 12.5), (0.5, 2, 0.1, 1, 0.2)],
)
def test_hill_length_by_hand(
    gamma: float, alpha: float, noise: float, intensity: float, length: float
):
    result = dynamics.hill_length(
        *(torch.tensor([float(v)]) for v in (gamma, alpha, noise)),
        torch.tensor([[float(intensity)]]),
    )
    assert result.item() == pytest.approx(length)


@pytest.mark.parametrize(
    ("n", "ratio", "expected"),
    [
        (80, 0.7, [48, 30, 18, 12, 8, 6]),
        (80, 0.525, [76, 74, 72, 70, 68, 66]),
        (5, 0.45, [6, 8, 10, 12, 14, 16]),
        (80, 0.5, [80, 80, 80]),
        (1, 0.5, [2, 2]),
        (5, 0.0, [10, 20]),
        (3, 1.0, [0]),
    ],
)
def test_sizes_follow_the_ratio(n: int, ratio: float, expected: list[int]):
    assert sizes(n, ratio, len(expected)) == expected


def test_below_one_half_every_colony_overflows():
    result = sizes(5, 0.49, 49)
    assert result[47] <= 100 < result[48]


@pytest.mark.parametrize("n", range(1, 101))
def test_float32_loses_no_deletion(n: int):
    for tenths in range(11):
        colonies = chain(n)
        survivors = (
            advance(
                FLAT, colonies, torch.tensor([[tenths / 10, 5.0, 2.0, 0.5, 0.0]])
            ).after.n.item()
            // 2
        )
        assert survivors == n - tenths * n // 10


def test_ties_of_x_delete_the_oldest_cells():
    ended = stepped(row(20, 10, 10, 10), (0.5, 5, 2, 0.5, 0))
    assert ended.final.pid[0, :4].tolist() == [0, 3, 4, 5]


def test_selection_equals_a_stable_sort_of_each_row():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (300, 17)).astype(np.float32)
    exists, count = rng.random(x.shape) < 0.7, rng.integers(0, 19, 300)
    result = select_leftmost(torch.tensor(x), torch.tensor(exists), torch.tensor(count)).numpy()
    for values, candidates, k, selected in zip(x, exists, count, result, strict=True):
        ranked = sorted(np.flatnonzero(candidates), key=lambda slot: values[slot])
        assert set(np.flatnonzero(selected)) == set(ranked[:k])


def test_orphans_get_their_nearest_surviving_ancestor_as_parent():
    colonies = colonies_of(FLAT.rules, row(*range(90, 10, -1)), parents=[[-1, *range(79)]])
    pos = colonies.pos.clone()
    pos[0, 1:79, 0] = 5  # all but the root and the last leaf will go
    after = advance(
        FLAT, colonies._replace(pos=pos), torch.tensor([[0.975, 5.0, 2.0, 0.5, 0.0]])
    ).after
    assert after.pid[0, :4].tolist() == [0, 79, 80, 81]
    assert after.parent[0, :4].tolist() == [-1, 0, 0, 1]


def test_children_stay_inside_the_margins():
    ended = stepped([(592.0, 393.0), (3.0, 399.0)], (0.0, 15, 0.5, 0.5, PI_6))
    assert ended.final.pos[0, 2:4].tolist() == [
        [594, 396],
        [pytest.approx(3 + 12.5 * math.cos(PI_6)), 396],
    ]


def test_time_age_and_new_count_steps_since_birth():
    colonies, action = chain(4), torch.tensor([[0.5, 5.0, 2.0, 0.5, 0.0]])
    assert colonies.age[0, :4].tolist() == [0, 0, 0, 0]
    colonies = advance(FLAT, colonies, action).after
    assert colonies.age[0, :5].tolist() == [1, 1, 0, 0, 0]
    assert colonies.new[0, :5].tolist() == [False, False, True, True, False]
    colonies = advance(FLAT, colonies, action).after
    assert (colonies.t.item(), colonies.age[0, :4].tolist()) == (
        2,
        [1, 1, 0, 0],
    )  # the oldest two were leftmost


def test_forests_stay_forests():
    some = world()
    colonies, generator = (
        start(some, 7, torch.Generator().manual_seed(3)),
        torch.Generator().manual_seed(4),
    )
    for _ in range(60):
        colonies = step(
            some, colonies, steered(colonies, some.rules, generator), generator
        ).colonies
        for parent, pid, n in zip(colonies.parent, colonies.pid, colonies.n.tolist(), strict=True):
            assert (parent[:n] < torch.arange(n)).all()  # hence no cycle
            assert (parent[:n] >= -1).all()
            assert (pid[:n].diff() > 0).all()
            assert (parent[n:] == -1).all()
            assert (pid[n:] == -1).all()
        assert (colonies.pos.abs().sum(2)[~dynamics.in_use(colonies)] == 0).all()


def test_a_colony_steps_alike_in_any_batch():
    some = world()
    colonies = wandering(some, 9, 12)
    action = steered(colonies, some.rules, torch.Generator().manual_seed(1))
    together = advance(some, colonies, action).after
    for place in range(9):
        alone = advance(
            some,
            Colonies(*(leaf[place : place + 1] for leaf in colonies)),
            action[place : place + 1],
        ).after
        for single, all_of_them in zip(alone, together, strict=True):
            assert torch.equal(single[0], all_of_them[place])


# Ends.


def reason_of(colonies: Colonies, ratio: float = 0.5, **changes: int) -> tuple[int, bool, bool]:
    some = world(flat_plate(), **changes)
    ended = step(some, colonies, torch.tensor([[ratio, 15.0, 0.5, 0.5, 0.0]]), torch.Generator())
    return int(ended.reason), bool(ended.terminated), bool(ended.truncated)


def near_goal(n: int = 4) -> Colonies:
    return colonies_of(FLAT.rules, row(*(585.0 + 0.01 * i for i in range(n))))


def test_each_episode_end_has_a_reason_and_only_the_time_limit_truncates():
    assert reason_of(chain(4)) == (RUNNING, False, False)
    assert reason_of(near_goal()) == (SUCCESS, True, False)
    assert reason_of(chain(60), ratio=0.0) == (OVERFLOW, True, False)
    assert reason_of(chain(4), ratio=1.0) == (EXTINCT, True, False)
    assert reason_of(chain(4)._replace(t=torch.tensor([119]))) == (TIMEOUT, False, True)
    assert reason_of(chain(4)._replace(t=torch.tensor([118]))) == (RUNNING, False, False)
    backwards = chain(4)._replace(left=torch.tensor([29]), centroid=torch.tensor([[500.0, 200.0]]))
    assert reason_of(backwards) == (LEFT_DRIFT, True, False)
    assert reason_of(backwards._replace(left=torch.tensor([28]))) == (RUNNING, False, False)


def test_the_later_reason_in_order_overrides_earlier_ones():
    late = torch.tensor([119])
    drifting = {"left": torch.tensor([29]), "centroid": torch.tensor([[700.0, 200.0]])}
    assert reason_of(near_goal()._replace(t=late)) == (SUCCESS, True, False)
    assert reason_of(near_goal(60), ratio=0.0) == (OVERFLOW, True, False)
    assert reason_of(near_goal()._replace(**drifting)) == (LEFT_DRIFT, True, False)
    assert reason_of(chain(4)._replace(t=late), ratio=1.0) == (EXTINCT, True, False)


def test_a_colony_that_dies_out_stays_where_it_was():
    ended = step(FLAT, chain(4), torch.tensor([[1.0, 5.0, 2.0, 0.5, 0.0]]), torch.Generator())
    assert torch.equal(ended.final.centroid, chain(4).centroid)
    assert ended.components[0, 0] == 0


def test_ended_colonies_are_reset_and_returned_as_final():
    some = world()
    colonies = wandering(some, 5, 9)
    colonies = colonies._replace(t=torch.where(torch.arange(5) % 2 == 0, 119, colonies.t))
    generator = torch.Generator().manual_seed(2)
    ended = step(some, colonies, steered(colonies, some.rules, generator), generator)
    over = ended.terminated | ended.truncated
    assert over[::2].all()
    assert (ended.colonies.t[over] == 0).all()
    assert (ended.final.t[::2] == 120).all()
    assert torch.equal(ended.colonies.pos[~over], ended.final.pos[~over])
    assert (ended.colonies.age[over] == 0).all()


def test_an_overflow_returns_the_true_count_and_crops_the_cells():
    ended = step(FLAT, chain(80), torch.tensor([[0.0, 5.0, 2.0, 0.5, 0.0]]), torch.Generator())
    assert ended.final.n.item() == 160
    assert ended.final.pos.shape == (1, 100, 2)
    assert ended.final.parent.max() < 100


# Beginnings.


def test_colonies_begin_as_chains_at_the_left():
    some = world(y_center=(0.3, 0.6), y_spread=0.05, n0_min=4, n0_max=33)
    colonies = start(some, 500, torch.Generator().manual_seed(0))
    assert set(colonies.n.tolist()) == set(range(4, 34))
    assert set(colonies.substrate.tolist()) == {0, 1, 2}
    for pos, parent, n in zip(colonies.pos, colonies.parent, colonies.n.tolist(), strict=True):
        x, y = pos[:n].unbind(1)
        assert (x.diff() >= 0).all()
        assert x.max() <= 60
        assert y.max() - y.min() <= 2 * 0.05 * 400 + 1e-3
        assert parent[:n].tolist() == list(range(-1, n - 1))
    middle = colonies.centroid[:, 1] / 400
    assert middle.min() > 0.25
    assert middle.max() < 0.65


def test_draws_depend_only_on_the_generator():
    some = world()
    first, again = (start(some, 20, torch.Generator().manual_seed(5)) for _ in range(2))
    other = start(some, 20, torch.Generator().manual_seed(6))
    assert all(torch.equal(single, two) for single, two in zip(first, again, strict=True))
    assert not torch.equal(first.pos, other.pos)
