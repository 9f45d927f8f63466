"""Steps of colonies: by hand, at the limits, and whatever the batch."""

import pytest
import torch

from quatrain.envs.colony.config import EXTINCT, LEFT_DRIFT, OVERFLOW, SUCCESS, Reward
from quatrain.envs.colony.dynamics import Colonies, advance
from quatrain.envs.colony.world import start, step
from tests.colonies import colonies_of, flat_plate, world

FLAT = world(flat_plate())


def row(*xs: float) -> list[tuple[float, float]]:
    return [(x, 200.0) for x in xs]


def chain(*n: int) -> Colonies:
    return colonies_of(FLAT.rules, *(row(*(10.0 + 0.1 * i for i in range(cells))) for cells in n))


def test_first_step_component_corrects_the_distance_component():
    terms = Reward(preset="centroid_distance_only", weights={"first_step": 1, "terminal_scaled": 0})
    some = world(flat_plate(), reward=terms)
    colonies = colonies_of(some.rules, row(50, 10, 20, 30, 40))
    action = torch.tensor([[0.2, 5.0, 2.0, 0.5, 0.0]])
    first = step(some, colonies, action, torch.Generator())
    # Four of five survive, and their children are 1.5 further right: the mean x is 35.75.
    assert first.reward.item() == pytest.approx(-(599 - 35.75) / 599)
    second = step(some, first.colonies, action, torch.Generator())
    moved = (second.final.centroid - first.final.centroid)[0, 0].item()
    assert second.components[0].tolist() == pytest.approx([5 * moved / 599, 0])


def test_float32_loses_no_deletion():
    n = torch.arange(1, 101)
    colonies = chain(*n.tolist())
    for tenths in range(11):
        action = torch.tensor([[tenths / 10, 5.0, 2.0, 0.5, 0.0]]).expand(100, 5)
        survivors = advance(FLAT, colonies, action).after.n // 2
        assert torch.equal(survivors, n - tenths * n // 10)


def test_the_later_reason_in_order_overrides_earlier_ones():
    def reason_of(colonies: Colonies, ratio: float = 0.5) -> int:
        action = torch.tensor([[ratio, 15.0, 0.5, 0.5, 0.0]])
        return int(step(FLAT, colonies, action, torch.Generator()).reason)

    def near_goal(n: int) -> Colonies:
        return colonies_of(FLAT.rules, row(*(585.0 + 0.01 * i for i in range(n))))

    late = torch.tensor([119])
    drifting = {"left": torch.tensor([29]), "centroid": torch.tensor([[700.0, 200.0]])}
    assert reason_of(near_goal(4)._replace(t=late)) == SUCCESS
    assert reason_of(near_goal(60), ratio=0.0) == OVERFLOW
    assert reason_of(near_goal(4)._replace(**drifting)) == LEFT_DRIFT
    assert reason_of(chain(4)._replace(t=late), ratio=1.0) == EXTINCT


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
    assert 0.25 < middle.min() < 0.32
    assert 0.58 < middle.max() < 0.65
