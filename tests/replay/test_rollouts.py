"""Advantages equal the plain recurrence; a rollout gives back what was written, each transition
once.
"""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from quatrain.replay.rollouts import buffer, gae
from quatrain.replay.rollouts.buffer import Graphs, Rollout, Sizes, Step, Transitions
from quatrain.replay.rollouts.gae import Trace
from tests.torch_numbers import seeded

SIZES = Sizes(
    horizon=4,
    envs=3,
    cells=9,
    node_features=2,
    graph_features=5,
    actions=6,
    dist_params=(2, 6),
    components=7,
    values=(),
)


def plain_advantages(trace: Trace, discount: float, gae_lambda: float) -> tuple[Tensor, Tensor]:
    """The definition, number by number, from the end: advantages and returns."""
    result = torch.zeros_like(trace.values)
    for env, *component in np.ndindex(*trace.values.shape[1:]):
        later = 0.0
        for time in reversed(range(len(result))):
            at = (time, env, *component)
            terminated, truncated = trace.terminated[time, env], trace.truncated[time, env]
            follows = 0 if terminated else discount * trace.next_values[at]
            later = 0 if terminated or truncated else discount * gae_lambda * later
            later = trace.rewards[at] + follows - trace.values[at] + later
            result[at] = later
    return result, result + trace.values


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
    trace = Trace(*numbers, terminated, truncated & ~terminated)
    trace.next_values[terminated] = torch.nan
    expected = list(plain_advantages(trace, discount, gae_lambda))
    result = gae.advantages(
        trace._replace(values=trace.values.clone().requires_grad_()), discount, gae_lambda
    )
    assert not any(column.requires_grad for column in result)
    torch.testing.assert_close(list(result), expected, rtol=1e-12, atol=1e-12)
    single = trace._replace(**{name: getattr(trace, name).float() for name in trace._fields[:3]})
    result, expected = gae.advantages(single, discount, gae_lambda), [e.float() for e in expected]
    torch.testing.assert_close(list(result), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (31, 5), (32, 40)])
def test_the_scan_of_a_gpu_is_the_loop_of_a_cpu(shape: tuple[int, int]):
    delta, coef = torch.rand(2, *shape, generator=seeded(), dtype=torch.float64)
    for some in (coef, coef.round(), torch.full_like(coef, 0.93)):
        torch.testing.assert_close(
            gae.gae_scan(delta, some), gae.gae(delta, some), rtol=1e-12, atol=1e-12
        )


def test_normalised_advantages_have_mean_0_and_the_deviation_1_of_a_population():
    result = gae.normalise(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    torch.testing.assert_close(result, torch.tensor([[-2.0, -1.0], [0.0, 3.0]]) / 3.5**0.5)
    for constant in (0.1, -1000.1):
        assert gae.normalise(torch.full((16, 127), constant)).abs().max() < 1e-6


def steps(widths: list[int]) -> Iterator[Step]:
    """One step for each width: colonies of 1 to `width` cells, all numbers different."""
    generator = seeded()

    def draw(*shape: int) -> Tensor:
        return torch.randn(SIZES.envs, *shape, generator=generator)

    for width in widths:
        n = torch.randint(1, width + 1, (SIZES.envs, 1), generator=generator)
        n[0] = width
        mask = torch.arange(width) < n
        parent = torch.randint(-1, width, (SIZES.envs, width), generator=generator).where(mask, -1)
        node = draw(width, SIZES.node_features) * mask[..., None]
        ends = draw(2) > 0.7
        yield Step(
            graphs=Graphs(node, draw(SIZES.graph_features), parent, mask),
            raw_action=draw(SIZES.actions),
            log_prob=draw(),
            dist_params=draw(2, SIZES.actions),
            value=draw(),
            components=draw(SIZES.components),
            terminated=ends[:, 0],
            truncated=ends[:, 1],
        )


def written(widths: list[int]) -> tuple[Rollout, list[Step]]:
    rollout, recorded = buffer.allocate(SIZES), list(steps(widths))
    for time, step in enumerate(recorded):
        buffer.write(rollout, time % SIZES.horizon, step)
    return rollout, recorded[-SIZES.horizon :]


def transitions_of(rollout: Rollout) -> Transitions:
    return buffer.to_transitions(rollout, rollout.value * 2, rollout.value * 3)


WIDTHS = [9, 9, 9, 9, 5, 3, 8, 4]
"""The first four steps are overwritten by narrower ones."""


def test_a_minibatch_holds_what_was_written_and_nothing_of_what_was_overwritten():
    rollout, recorded = written(WIDTHS)
    index = torch.tensor([11, 0, 7, 7, 4, 9, 2, 6])
    transitions = transitions_of(rollout)
    result = buffer.minibatch(transitions, index)
    sizes = transitions.n[index]
    order = index[sizes.sort(stable=True).indices].tolist()
    rows = [(group, row) for group in result.groups for row in range(len(group.mask))]
    for place, (i, (group, row)) in enumerate(zip(order, rows, strict=True)):
        step, env = recorded[i // 3], i % 3
        n, width = int(step.graphs.mask[env].sum()), group.node.shape[1]
        assert torch.equal(group.node[row, :n], step.graphs.node[env, :n])
        assert torch.equal(group.parent[row, :n], step.graphs.parent[env, :n])
        assert group.mask[row].tolist() == [True] * n + [False] * (width - n)
        assert not group.node[row, n:].any()
        assert (group.parent[row, n:] == -1).all()
        assert torch.equal(group.graph[row], step.graphs.graph[env])
        for name in ("raw_action", "log_prob", "dist_params", "value"):
            assert torch.equal(getattr(result, name)[place], getattr(step, name)[env])
        assert result.advantage[place] == 2 * step.value[env]
        assert result.returns[place] == 3 * step.value[env]


def test_a_group_of_a_minibatch_is_as_wide_as_its_largest_graph_or_as_asked():
    transitions = transitions_of(written(WIDTHS)[0])
    result = buffer.minibatch(transitions, torch.arange(12))
    sizes = transitions.n.sort().values.view(buffer.GROUPS, -1)
    expected = [(3, int(largest)) for largest in sizes[:, -1]]
    assert [group.node.shape[:2] for group in result.groups] == expected
    index = torch.tensor([3, 4])
    (wide,) = buffer.minibatch(transitions, index, width=9).groups
    assert wide.node.shape[:2] == wide.mask.shape == (2, 9)
    assert torch.equal(wide.node, transitions.node[index, :9])
    assert torch.equal(wide.mask.sum(1), transitions.n[index])


def test_a_rollout_keeps_its_memory():
    rollout, _ = written(WIDTHS)
    places = [column.data_ptr() for column in rollout]
    buffer.write(rollout, 0, next(steps([4])))
    assert [column.data_ptr() for column in rollout] == places
    assert transitions_of(rollout).node.data_ptr() == rollout.node.data_ptr()


def test_next_values_are_those_of_the_next_step_but_of_the_final_state_where_time_was_up():
    rollout, _ = written(WIDTHS)
    rollout.truncated.copy_(torch.tensor([[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]))
    buffer.fill_next_values(
        rollout, torch.tensor([10.0, 11.0, 12.0]), torch.tensor([20.0, 21.0, 22.0])
    )
    value = rollout.value.tolist()
    expected = [[value[1][0], 20, value[1][2]], value[2], [21, *value[3][1:]], [10, 11, 22]]
    assert rollout.next_value.tolist() == expected


def test_values_of_components_have_their_axis_everywhere():
    rollout = buffer.allocate(SIZES._replace(values=(7,)))
    buffer.fill_next_values(rollout, torch.ones(3, 7), torch.zeros(0, 7))
    transitions = buffer.to_transitions(rollout, torch.zeros(4, 3), rollout.next_value)
    result = buffer.minibatch(transitions, torch.tensor([0, 9]), width=2)
    assert result.value.shape == (2, 7)
    assert result.returns.tolist() == [[0] * 7, [1] * 7]


def test_an_epoch_has_every_transition_once_in_an_order_that_only_the_generator_decides():
    def epoch(seed: int) -> tuple[Tensor, ...]:
        return buffer.minibatch_indices(23, 5, seeded(seed))

    assert [len(index) for index in epoch(0)] == [5, 5, 5, 5, 3]
    assert sorted(torch.cat(epoch(0)).tolist()) == list(range(23))
    assert torch.equal(torch.cat(epoch(0)), torch.cat(epoch(0)))
    assert not torch.equal(torch.cat(epoch(0)), torch.cat(epoch(1)))
