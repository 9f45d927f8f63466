"""Advantages equal the plain recurrence; a rollout gives back what was written, each transition
once.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.replay import rollouts
from quatrain.replay.rollouts import Graphs, Rollout, Spec, Transitions
from tests.torch_numbers import seeded

HORIZON, ENVS = 4, 3
SPEC = Spec(
    cells=9,
    node_features=2,
    graph_features=5,
    action_low=(0.0,) * 6,
    action_high=(1.0,) * 6,
    action_counts=(),
    components=7,
)
Step = dict[str, Any]
"""Arguments of `rollouts.write`."""


def allocated(values: tuple[int, ...] = ()) -> Rollout:
    return rollouts.allocate((HORIZON, ENVS), SPEC, (2, 6), values)


def plain_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    discount: float,
    gae_lambda: float,
) -> tuple[Tensor, Tensor]:
    """The definition, number by number, from the end: advantages and returns."""
    result = torch.zeros_like(values)
    for env, *component in np.ndindex(*values.shape[1:]):
        later = 0.0
        for time in reversed(range(len(result))):
            at = (time, env, *component)
            ended = terminated[time, env] or truncated[time, env]
            follows = 0 if terminated[time, env] else discount * next_values[at]
            later = 0 if ended else discount * gae_lambda * later
            later = rewards[at] + follows - values[at] + later
            result[at] = later
    return result, result + values


@pytest.mark.parametrize("ends", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    ("shape", "discount", "gae_lambda"),
    [
        *((shape, 0.97, 0.95) for shape in ((1, 1), (2, 3), (32, 1), (300, 3))),
        *((shape, 0.9, 0.8) for shape in ((31, 2, 3), (5, 6, 3))),
        ((31, 5), 0.97, 0.0),
        ((32, 40), 1.0, 1.0),
    ],
)
def test_advantages_are_those_of_the_definition_without_gradients_or_what_follows_a_terminal_state(
    ends: float, shape: tuple[int, ...], discount: float, gae_lambda: float
):
    generator = seeded(sum(shape))
    numbers = torch.randn(3, *shape, generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand(2, *shape[:2], generator=generator) < ends / 2
    truncated |= ends == 1
    rest = (terminated, truncated & ~terminated, discount, gae_lambda)
    rewards, values, next_values = numbers
    next_values[terminated] = torch.nan
    expected = plain_advantages(rewards, values, next_values, *rest)
    result = rollouts.advantages(rewards, values.clone().requires_grad_(), next_values, *rest)
    assert not any(column.requires_grad for column in result)
    torch.testing.assert_close(result, expected, rtol=1e-12, atol=1e-12)
    result = rollouts.advantages(*numbers.float(), *rest)
    torch.testing.assert_close(result, tuple(e.float() for e in expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (31, 5), (32, 40)])
def test_the_scan_and_what_a_cpu_takes_are_the_recurrence(shape: tuple[int, int]):
    delta, coef = torch.rand(2, *shape, generator=seeded(), dtype=torch.float64)
    for some in (coef, coef.round(), torch.full_like(coef, 0.93)):
        expected = delta.clone()
        for time in reversed(range(shape[0] - 1)):
            expected[time] += some[time] * expected[time + 1]
        for way in (rollouts.gae_scan, rollouts.gae):
            torch.testing.assert_close(way(delta, some), expected, rtol=1e-12, atol=1e-12)


def test_normalised_advantages_have_mean_0_and_the_deviation_1_of_a_population():
    result = rollouts.normalise(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    torch.testing.assert_close(result, torch.tensor([[-2.0, -1.0], [0.0, 3.0]]) / 3.5**0.5)
    for constant in (0.1, -1000.1):
        assert rollouts.normalise(torch.full((16, 127), constant)).abs().max() < 1e-6


def steps(widths: list[int]) -> Iterator[Step]:
    """One step for each width: colonies of 1 to `width` cells, all numbers different."""
    generator = seeded()

    def draw(*shape: int) -> Tensor:
        return torch.randn(ENVS, *shape, generator=generator)

    for width in widths:
        n = torch.randint(1, width + 1, (ENVS, 1), generator=generator)
        n[0] = width
        mask = torch.arange(width) < n
        parent = torch.randint(-1, width, (ENVS, width), generator=generator).where(mask, -1)
        node = draw(width, SPEC.node_features) * mask[..., None]
        ends = draw(2) > 0.7
        yield {
            "graphs": Graphs(node, draw(SPEC.graph_features), parent, mask),
            "raw_action": draw(6),
            "log_prob": draw(),
            "dist_params": draw(2, 6),
            "value": draw(),
            "components": draw(SPEC.components),
            "terminated": ends[:, 0],
            "truncated": ends[:, 1],
        }


def written(widths: list[int]) -> tuple[Rollout, list[Step]]:
    rollout, recorded = allocated(), list(steps(widths))
    for time, step in enumerate(recorded):
        rollouts.write(rollout, time % HORIZON, **step)
    return rollout, recorded[-HORIZON:]


def transitions_of(rollout: Rollout) -> Transitions:
    return rollouts.to_transitions(rollout, rollout.value * 2, rollout.value * 3)


WIDTHS = [9, 9, 9, 9, 5, 3, 8, 4]
"""The first four steps are overwritten by narrower ones."""


def test_a_minibatch_holds_what_was_written_and_nothing_of_what_was_overwritten():
    rollout, recorded = written(WIDTHS)
    index = torch.tensor([11, 0, 7, 7, 4, 9, 2, 6])
    transitions = transitions_of(rollout)
    result = rollouts.minibatch(transitions, index)
    sizes = transitions.n[index]
    order = index[sizes.sort(stable=True).indices].tolist()
    rows = [(group, row) for group in result.groups for row in range(len(group.mask))]
    for place, (i, (group, row)) in enumerate(zip(order, rows, strict=True)):
        step, env = recorded[i // 3], i % 3
        graphs = step["graphs"]
        n, width = int(graphs.mask[env].sum()), group.node.shape[1]
        assert torch.equal(group.node[row, :n], graphs.node[env, :n])
        assert torch.equal(group.parent[row, :n], graphs.parent[env, :n])
        assert group.mask[row].tolist() == [True] * n + [False] * (width - n)
        assert not group.node[row, n:].any()
        assert (group.parent[row, n:] == -1).all()
        assert torch.equal(group.graph[row], graphs.graph[env])
        for name in ("raw_action", "log_prob", "dist_params", "value"):
            assert torch.equal(getattr(result, name)[place], step[name][env])
        assert result.advantage[place] == 2 * step["value"][env]
        assert result.returns[place] == 3 * step["value"][env]


def test_a_group_of_a_minibatch_is_as_wide_as_its_largest_graph_or_as_asked():
    transitions = transitions_of(written(WIDTHS)[0])
    result = rollouts.minibatch(transitions, torch.arange(12))
    sizes = transitions.n.sort().values.view(rollouts.GROUPS, -1)
    expected = [(3, int(largest)) for largest in sizes[:, -1]]
    assert [group.node.shape[:2] for group in result.groups] == expected
    index = torch.tensor([3, 4])
    (wide,) = rollouts.minibatch(transitions, index, width=9).groups
    assert wide.node.shape[:2] == wide.mask.shape == (2, 9)
    assert torch.equal(wide.node, transitions.node[index, :9])
    assert torch.equal(wide.mask.sum(1), transitions.n[index])


def test_next_values_are_those_of_the_next_step_but_of_the_final_state_where_time_was_up():
    rollout, _ = written(WIDTHS)
    rollout.truncated.copy_(torch.tensor([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]))
    rollouts.fill_next_values(
        rollout, torch.tensor([10.0, 11.0, 12.0]), torch.tensor([20.0, 21.0, 22.0])
    )
    value = rollout.value.tolist()
    expected = [[value[1][0], 20, value[1][2]], value[2], [21, *value[3][1:]], [10, 11, 22]]
    assert rollout.next_value.tolist() == expected


def test_an_epoch_has_every_transition_once_in_an_order_that_only_the_generator_decides():
    def epoch(seed: int) -> tuple[Tensor, ...]:
        return rollouts.minibatch_indices(23, 5, seeded(seed))

    assert [len(index) for index in epoch(0)] == [5, 5, 5, 5, 3]
    assert sorted(torch.cat(epoch(0)).tolist()) == list(range(23))
    assert torch.equal(torch.cat(epoch(0)), torch.cat(epoch(0)))
    assert not torch.equal(torch.cat(epoch(0)), torch.cat(epoch(1)))
