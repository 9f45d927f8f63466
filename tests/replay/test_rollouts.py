"""Advantages equal the plain recurrence; a rollout gives back what was written, each transition
once.
"""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from quatrain.replay.rollouts import buffer, gae
from quatrain.replay.rollouts.buffer import Graphs, Rollout, Sizes, Step, Transitions
from quatrain.replay.rollouts.gae import Trace

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


def recurrence(delta: Tensor, coef: Tensor) -> Tensor:
    """A_t = delta_t + coef_t A_{t+1}, number by number."""
    result = torch.zeros_like(delta)
    for env in range(delta.shape[1]):
        later = 0.0
        for time in reversed(range(len(delta))):
            later = float(delta[time, env]) + float(coef[time, env]) * later
            result[time, env] = later
    return result


def random_recurrence(
    steps: int, envs: int, ends: float, factor: float = 0.93
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(steps * 100 + envs)
    delta = torch.randn(steps, envs, generator=generator, dtype=torch.float64)
    ended = torch.rand(steps, envs, generator=generator) < ends
    return delta, torch.full_like(delta, factor).masked_fill(ended, 0)


@pytest.mark.parametrize("ends", [0.0, 0.1, 1.0])
@pytest.mark.parametrize(
    ("steps", "envs", "factor"),
    [(1, 1, 0.93), (2, 3, 0.93), (32, 1, 0.93), (31, 5, 0.0), (32, 40, 1.0), (300, 3, 0.93)],
)
def test_advantages_are_the_recurrence_wherever_episodes_end(ends, steps, envs, factor):
    delta, coef = random_recurrence(steps, envs, ends, factor)
    expected = recurrence(delta, coef)
    for form in (gae.gae, gae.gae_scan):
        torch.testing.assert_close(form(delta, coef), expected, rtol=1e-12, atol=1e-12)
        single = form(delta.float(), coef.float())
        torch.testing.assert_close(single, expected.float(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("steps", "envs"), [(31, 2), (5, 6)])
def test_components_share_the_coefficients_of_their_env(steps, envs):
    delta, coef = random_recurrence(steps, envs, 0.1)
    coef = coef * torch.rand(steps, envs, generator=torch.Generator().manual_seed(1)).double()
    components = torch.stack([delta, 2 * delta.flip(0), delta + 1], 2)
    expected = torch.stack([recurrence(components[..., c], coef) for c in range(3)], 2)
    torch.testing.assert_close(gae.gae(components, coef), expected, rtol=1e-12, atol=1e-12)


def column(*numbers: float) -> Tensor:
    return torch.tensor(numbers)[:, None]


WORKED = {
    "truncated": ([1.974272, 1.5476, 2.33, 1.34], [2.474272, 1.9476, 2.63, 1.54]),
    "terminated": ([1.64768, 1.094, 1.7, 1.34], [2.14768, 1.494, 2.0, 1.54]),
}
"""By how the episode ends at step 2: advantages, returns."""


@pytest.mark.parametrize("end", list(WORKED))
def test_worked_advantages_bootstrap_after_a_truncation_and_not_after_a_termination(end):
    never, at_step_2 = torch.zeros(4, 1, dtype=torch.bool), torch.arange(4)[:, None] == 2
    ends = {"terminated": never, "truncated": never} | {end: at_step_2}
    trace = Trace(
        column(1, 0, 2, 1), column(0.5, 0.4, 0.3, 0.2), column(0.4, 0.3, 0.7, 0.6), **ends
    )
    expected = [column(*numbers) for numbers in WORKED[end]]
    result = gae.advantages(trace, 0.9, 0.8)
    torch.testing.assert_close(list(result), expected, rtol=0, atol=1e-6)


def random_trace() -> Trace:
    generator = torch.Generator().manual_seed(3)
    numbers = torch.randn(3, 13, 5, generator=generator, dtype=torch.float64)
    terminated, truncated = torch.rand(2, 13, 5, generator=generator) < 0.15
    return Trace(*numbers, terminated, truncated & ~terminated)


def test_no_gradient_passes_and_what_would_follow_a_terminal_state_counts_for_nothing():
    trace = random_trace()
    wild = trace._replace(
        values=trace.values.clone().requires_grad_(),
        next_values=trace.next_values.masked_fill(trace.terminated, torch.nan),
    )
    result, expected = (gae.advantages(each, 0.97, 0.95) for each in (wild, trace))
    torch.testing.assert_close(list(result), list(expected), rtol=0, atol=0)
    assert not any(column.requires_grad for column in result)


def test_normalised_advantages_have_mean_0_and_the_deviation_1_of_a_population():
    result = gae.normalise(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
    torch.testing.assert_close(result, torch.tensor([[-2.0, -1.0], [0.0, 3.0]]) / 3.5**0.5)
    for constant in (0.1, -1000.1):
        assert gae.normalise(torch.full((16, 127), constant)).abs().max() < 1e-6


def steps(widths: list[int]) -> Iterator[Step]:
    """One step for each width: colonies of 1 to `width` cells, all numbers different."""
    generator = torch.Generator().manual_seed(0)

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
        return buffer.minibatch_indices(23, 5, torch.Generator().manual_seed(seed))

    assert [len(index) for index in epoch(0)] == [5, 5, 5, 5, 3]
    assert sorted(torch.cat(epoch(0)).tolist()) == list(range(23))
    assert torch.equal(torch.cat(epoch(0)), torch.cat(epoch(0)))
    assert not torch.equal(torch.cat(epoch(0)), torch.cat(epoch(1)))
