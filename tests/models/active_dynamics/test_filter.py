"""The filter of states and weights: worked numbers, dense algebra, long runs, beginnings, what must
not matter.
"""

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Generator, Tensor
from torch.distributions import MultivariateNormal

from quatrain.envs.vector_field.observation import Emission
from quatrain.models.active_dynamics.bayes_filter import filter as beliefs
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.filter import Belief, Filter
from quatrain.models.active_dynamics.network import Derived, Rbf
from tests.models.active_dynamics import filters
from tests.models.active_dynamics.filters import (
    Dense,
    copied,
    drawn,
    emission,
    filter_of,
    row_of,
    some_belief,
)

ROWS, D = 4, 2
SIZE = D + D * 9
"""Of a state with the weights of 3 x 3 functions."""
OBSERVED: dict[str, tuple[str, str, int]] = {
    "identity": ("identity", "gaussian", 2),
    "linear": ("linear", "gaussian", 5),
    "fewer channels than dimensions": ("linear", "gaussian", 1),
    "loglinear": ("loglinear", "gaussian", 5),
    "one loglinear channel": ("loglinear", "gaussian", 1),
    "counts": ("loglinear", "poisson", 7),
}
"""Kinds of channels: of emission, of noise, how many."""


def seen_of(channels: Emission, rows: int, seed: int) -> Tensor:
    """Observations of states near 0."""
    generator = Generator().manual_seed(seed)
    x = torch.rand(rows, channels.weight.shape[1], generator=generator, dtype=torch.float64) - 0.5
    return channels.sample(x, None, generator)


# Worked numbers.


class Worked(NamedTuple):
    initial: Filter
    belief: Belief


def scalar() -> Worked:
    """One dimension, and one function that is 1, with slope 0, where the state is."""

    def number(*values: float) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    channels = Emission("linear", "gaussian", number(1)[None], number(0), number(0.02))
    inputs = Filter(Rbf(number(0), 1.0, 1), channels, dt=0.1, process_noise=0.1)
    return Worked(inputs, Belief(number(0, 0)[None], torch.diag(number(0.01, 1))[None]))


def close(result: Tensor, expected: Any) -> None:
    torch.testing.assert_close(
        result, torch.tensor(expected, dtype=torch.float64), rtol=1e-13, atol=1e-13
    )


def test_worked_prediction():
    inputs, belief = scalar()
    beliefs.predict(inputs, belief, torch.tensor([[0.5]]).double())
    close(belief.mean, [[0.05, 0]])
    close(belief.covariance, [[[0.03, 0.1], [0.1, 1]]])


def test_worked_correction():
    inputs, belief = scalar()
    beliefs.predict(inputs, belief, torch.tensor([[0.5]]).double())
    nll = beliefs.correct(inputs, belief, torch.tensor([[0.2]], dtype=torch.float64))
    close(belief.mean, [[0.14, 0.3]])
    close(belief.covariance, [[[0.012, 0.04], [0.04, 0.8]]])
    assert float(nll) == pytest.approx((math.log(2 * math.pi * 0.05) + 0.15**2 / 0.05) / 2)


def test_nothing_is_known_at_first_but_the_prior():
    functions = filters.rbf(side=4)
    belief = beliefs.prior(functions, 3, 0.25)
    assert belief.mean.shape == (3, 2 + 2 * 16)
    assert not belief.mean.any()
    expected = torch.diag(torch.cat([torch.full((2,), 1 / 3), torch.full((32,), 0.25)]).double())
    torch.testing.assert_close(belief.covariance, expected.expand(3, -1, -1), rtol=1e-7, atol=0)
    belief.covariance[1] = 7
    torch.testing.assert_close(belief.covariance[2], expected, rtol=1e-7, atol=0)


# Against dense algebra.


def dense_run(
    inputs: Filter, belief: Belief, u: list[Tensor], y: list[Tensor]
) -> list[list[Dense]]:
    """By transition and row."""
    now, result = [row_of(belief, row) for row in range(len(belief.mean))], []
    noise = filters.process_noise(inputs.d, belief.mean.shape[1])
    for action, observation in zip(u, y, strict=True):
        ahead = [
            filters.predicted(filters.joint_step(inputs.rbf, action[row]), noise, item)
            for row, item in enumerate(now)
        ]
        now = [
            filters.corrected(inputs.emission, observation[row], item)
            for row, item in enumerate(ahead)
        ]
        result.append(now)
    return result


def assert_same(inputs: Filter, belief: Belief, nll: Tensor, expected: list[Dense]) -> None:
    near = filters.trusted(inputs.emission, 1e-9)
    for row, item in enumerate(expected):
        torch.testing.assert_close(belief.mean[row], item.mean, **near)
        torch.testing.assert_close(belief.covariance[row], item.covariance, **near)
        torch.testing.assert_close(nll[row], item.nll, **near)


@pytest.mark.parametrize("case", OBSERVED)
def test_it_is_the_dense_extended_kalman_filter(case: str):
    kind, noise, count = OBSERVED[case]
    inputs = filter_of(emission(kind, noise, count))
    belief = some_belief(ROWS, SIZE)
    u, y = (
        [drawn(ROWS, D, seed=time) for time in range(5)],
        [seen_of(inputs.emission, ROWS, time) for time in range(5)],
    )
    expected = dense_run(inputs, belief, u, y)
    for time in range(5):
        beliefs.predict(inputs, belief, u[time])
        assert_same(inputs, belief, beliefs.correct(inputs, belief, y[time]), expected[time])


def test_three_dimensions_are_the_dense_filter_too():
    inputs = filter_of(emission(channels=2, d=3))
    belief = some_belief(2, 3 + 3 * 27)
    u, y = (
        [drawn(2, 3, seed=time) for time in range(2)],
        [seen_of(inputs.emission, 2, time) for time in range(2)],
    )
    expected = dense_run(inputs, belief, u, y)
    for time in range(2):
        beliefs.predict(inputs, belief, u[time])
        assert_same(inputs, belief, beliefs.correct(inputs, belief, y[time]), expected[time])


def test_channels_of_each_row_are_the_dense_filter_of_that_row():
    local = [
        emission(channels=5)._replace(weight=0.6 * drawn(5, 2, seed=row)) for row in range(ROWS)
    ]
    learned = LearnedChannels(
        *(torch.stack(parts) for parts in zip(*(item[2:] for item in local), strict=True))
    )
    inputs, belief = filter_of(learned, filters.rbf()), some_belief(ROWS, SIZE)
    y = drawn(ROWS, 5, seed=9)
    expected = [
        filters.corrected(item, y[row], row_of(belief, row)) for row, item in enumerate(local)
    ]
    assert_same(inputs, belief, beliefs.correct(inputs, belief, y), expected)


def steep(noise: str, noise_sd: float, weight_sd: float, count: int, seed: int) -> Emission:
    weight, bias = weight_sd * drawn(count, D, seed=seed), 0.1 * drawn(count, seed=seed + 1)
    of: Any = noise
    return Emission(
        "loglinear", of, weight, bias, torch.full((count,), noise_sd**2, dtype=torch.float64)
    )


@pytest.mark.parametrize("count", [50, 7])
@pytest.mark.parametrize("weight_sd", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("noise", "noise_sd"), [("gaussian", 0.1), ("gaussian", 1e-3), ("poisson", 0.0)]
)
def test_a_state_that_is_seen_first_is_found_within_its_claimed_deviation(
    noise: str, noise_sd: float, weight_sd: float, count: int
):
    """From U(-1, 1), by channels that bend up to a thousandfold."""
    rows, draws = 1500, Generator().manual_seed(count)
    channels = steep(noise, noise_sd, weight_sd, count, seed=count)
    x = 2 * torch.rand(rows, D, generator=draws, dtype=torch.float64) - 1
    belief = beliefs.state_prior(D, rows)
    beliefs.correct(filter_of(channels), belief, channels.sample(x, None, draws))
    assert (torch.linalg.eigvalsh(belief.covariance) > 0).all()
    claimed = belief.covariance.diagonal(dim1=1, dim2=2).sqrt()
    assert ((belief.mean - x).abs() < 5 * claimed).all(1).double().mean() > 0.99
    assert ((belief.mean - x).abs() < claimed).double().mean() > 0.55


@pytest.mark.parametrize("count", [7, 1])
@pytest.mark.parametrize(
    ("noise", "noise_sd"), [("gaussian", 0.1), ("gaussian", 1e-3), ("poisson", 0.0)]
)
def test_where_a_state_is_found_nothing_near_is_likelier(noise: str, noise_sd: float, count: int):
    """By differences of the posterior's density, which need no derivative."""
    rows, channels = 40, steep(noise, noise_sd, 1.0, count, seed=5)
    before, draws = some_belief(rows, D), Generator().manual_seed(2)
    x = before.mean + _times_root(before.covariance, drawn(rows, D, seed=9))
    y, after = channels.sample(x, None, draws), copied(before)
    beliefs.correct(filter_of(channels), after, y)

    def cost(at: Tensor) -> Tensor:
        h = channels.mean(at)
        misfit = (
            (y - h).square() / channels.noise_variance / 2
            if noise == "gaussian"
            else h - y * h.log()
        )
        return misfit.sum(1) - MultivariateNormal(before.mean, before.covariance).log_prob(at)

    for axis in torch.linalg.cholesky(after.covariance).unbind(2):
        for away in (-0.1, 0.1):
            assert (cost(after.mean + away * axis) > cost(after.mean)).all()


def _times_root(covariance: Tensor, normal: Tensor) -> Tensor:
    return (torch.linalg.cholesky(covariance) @ normal[..., None])[..., 0]


def test_a_state_that_is_known_stays_where_channels_bend():
    """And one of which one dimension is known moves along the other alone, with weights that go
    with it.
    """
    inputs, belief = filter_of(emission("loglinear")), some_belief(2, SIZE)
    belief.covariance[:, 0], belief.covariance[..., 0] = 0, 0
    belief.covariance[1, 1], belief.covariance[1, :, 1] = 0, 0
    before = copied(belief)
    beliefs.correct(inputs, belief, seen_of(inputs.emission, 2, 3))
    assert torch.equal(belief.mean[1], before.mean[1])
    assert torch.equal(belief.mean[0, 0], before.mean[0, 0])
    assert (belief.mean[0, 1:] != before.mean[0, 1:]).all()
    assert 0 < belief.covariance[0, 1, 1] < before.covariance[0, 1, 1]


@pytest.mark.parametrize("case", OBSERVED)
def test_the_score_is_the_density_of_the_dense_normal_distribution(case: str):
    kind, noise, count = OBSERVED[case]
    channels, (x, spread) = emission(kind, noise, count), some_belief(ROWS, D)
    y = seen_of(channels, ROWS, 7)
    slope = channels.jacobian(x)
    covariance = slope @ spread @ slope.mT + torch.diag_embed(channels.variance(x).expand(ROWS, -1))
    expected = -MultivariateNormal(channels.mean(x), covariance).log_prob(y) / count
    torch.testing.assert_close(beliefs.innovation(channels, x, spread, y), expected)


def test_a_state_that_was_seen_is_the_one_of_the_prediction():
    """Only the state has a noise of its own: weights of functions far away stay as they are."""
    inputs = filter_of(emission(channels=5), filters.rbf(side=3, length=0.2))
    belief = beliefs.prior(inputs.rbf, 1, 0.5)
    belief.mean[0, :2] = 2
    beliefs.correct(inputs, belief, emission(channels=5).mean(belief.mean[:, :2]))
    before = copied(belief)
    beliefs.predict(inputs, belief, torch.zeros(1, 2, dtype=torch.float64))
    beliefs.correct(inputs, belief, torch.ones(1, 5, dtype=torch.float64))
    changed = (belief.mean - before.mean).abs()[0, 2:].unflatten(0, (2, 9))
    assert (changed[:, 8] > 1e-4).all()
    assert (changed[:, :5] < 1e-12).all()


# Where the truth is known.


class Coordinates(NamedTuple):
    """The state itself in place of radial functions, so that W is the A of a linear field."""

    d: int

    def with_derivatives(self, x: Tensor) -> Derived:
        return Derived(x, torch.eye(self.d, dtype=x.dtype).expand(*x.shape, self.d))


def test_with_known_weights_of_a_linear_field_it_is_the_kalman_filter():
    matrix = torch.tensor([[-0.5, -1.0], [1.0, -0.5]], dtype=torch.float64)
    functions: Any = Coordinates(D)
    channels, rows = emission(channels=5), 3
    inputs = filter_of(channels, functions)
    belief = Belief(torch.zeros(rows, 6).double(), torch.zeros(rows, 6, 6).double())
    belief.mean[:, 2:] = matrix.flatten()
    belief.covariance[:, :2, :2] = torch.eye(2) / 3
    moved, noise = torch.eye(2) + filters.DT * matrix, torch.diag(channels.noise_variance)
    x, spread = torch.zeros(rows, 2).double(), (torch.eye(2) / 3).double()
    for time in range(30):
        u, y = drawn(rows, D, seed=time), drawn(rows, 5, seed=100 + time)
        x, spread = (
            x @ moved.T + filters.DT * u,
            moved @ spread @ moved.T + filters.process_noise(2, 2),
        )
        gain = (
            spread
            @ channels.weight.T
            @ torch.linalg.inv(channels.weight @ spread @ channels.weight.T + noise)
        )
        x, spread = x + (y - channels.mean(x)) @ gain.T, spread - gain @ channels.weight @ spread
        beliefs.predict(inputs, belief, u)
        beliefs.correct(inputs, belief, y)
        torch.testing.assert_close(belief.mean[:, :2], x)
        torch.testing.assert_close(belief.covariance[:, :2, :2], spread.expand(rows, 2, 2))
    assert torch.equal(belief.mean[:, 2:], matrix.flatten().expand(rows, 4))
    assert not belief.covariance[:, 2:].any()


def test_with_certain_weights_a_belief_about_states_alone_is_the_same():
    """The weights' field by differences, the joint filter's by derivatives."""
    inputs = filter_of(emission(channels=5))
    joint, weights = beliefs.prior(inputs.rbf, ROWS, 0.0), drawn(D, 9, seed=2)
    joint.mean[:, 2:] = weights.flatten()
    alone = beliefs.state_prior(D, ROWS)
    for time in range(20):
        u, y = drawn(ROWS, D, seed=time), seen_of(inputs.emission, ROWS, time)
        beliefs.predict(inputs, joint, u)
        beliefs.predict_state(inputs, alone, lambda x: inputs.rbf.features(x) @ weights.T, u)
        scores = [beliefs.correct(inputs, item, y) for item in (joint, alone)]
        torch.testing.assert_close(*scores, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(alone.mean, joint.mean[:, :2], rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            alone.covariance, joint.covariance[:, :2, :2], rtol=1e-6, atol=1e-6
        )


# Long runs.


def turning(x: Tensor) -> Tensor:
    """A field whose paths wind onto the unit circle."""
    return x * (1 - x.square().sum(1, keepdim=True)) + torch.stack([-x[:, 1], x[:, 0]], 1)


@pytest.mark.parametrize("count", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_covariances_stay_symmetric_and_positive_definite(count: int):
    """Symmetric but for rounding, as products of matrices need not add (i, j) and (j, i) in the
    same order.
    """
    inputs, rows = filter_of(emission(channels=3)), 2
    belief, draws = beliefs.prior(inputs.rbf, rows, 0.4), Generator().manual_seed(1)
    x = torch.zeros(rows, D, dtype=torch.float64)
    least = []
    for time in range(count):
        u = 2 * torch.rand(rows, D, generator=draws, dtype=torch.float64) - 1
        x = (
            x
            + (turning(x) + u) * filters.DT
            + 0.05 * torch.randn(rows, D, generator=draws, dtype=torch.float64)
        )
        beliefs.predict(inputs, belief, u)
        beliefs.correct(inputs, belief, inputs.emission.sample(x, None, draws))
        over = torch.tensor([time % 130 == 129, time % 170 == 169])
        x = torch.where(over[:, None], 0.5, x)
        beliefs.restart(inputs, belief, over, inputs.emission.sample(x, None, draws))
        if time % 50 == 49:
            assert (
                belief.covariance - belief.covariance.mT
            ).abs().max() < 1e-14 * belief.covariance.abs().max()
            least.append(torch.linalg.eigvalsh(belief.covariance).min())
    assert len(least) == count // 50
    assert min(least) > 1e-7
    assert belief.mean.isfinite().all()


def test_the_field_is_learned_where_the_state_was():
    inputs, rows = filter_of(emission(channels=5), filters.rbf(side=5, length=0.8)), 3
    belief, draws = beliefs.prior(inputs.rbf, rows, 0.4), Generator().manual_seed(1)
    x = torch.zeros(rows, D, dtype=torch.float64)
    for _ in range(400):
        u = 2 * torch.rand(rows, D, generator=draws, dtype=torch.float64) - 1
        noise = (filters.PROCESS_NOISE * filters.DT) ** 0.5 * torch.randn(
            rows, D, generator=draws, dtype=torch.float64
        )
        x = x + (turning(x) + u) * filters.DT + noise
        beliefs.predict(inputs, belief, u)
        beliefs.correct(inputs, belief, inputs.emission.sample(x, None, draws))
    angle = torch.linspace(0, 6, 12, dtype=torch.float64)
    ring = torch.stack([angle.cos(), angle.sin()], 1)
    learned = inputs.rbf.features(ring) @ beliefs.weights(D, belief).mT
    error = (learned - turning(ring)).square().sum((1, 2)) / turning(ring).square().sum()
    assert error.sqrt().max() < 0.3
    # Where the state is, it is known to a fraction of what one observation tells.
    assert ((belief.mean[:, :2] - x).square().mean().sqrt()) < 0.25


# Beginnings.


def test_where_an_episode_began_anew_the_state_is_forgotten_and_weights_are_not():
    inputs, belief = filter_of(emission(channels=5)), some_belief(ROWS, SIZE)
    before, y = copied(belief), seen_of(inputs.emission, ROWS, 3)
    over = torch.tensor([False, True, False, True])
    beliefs.restart(inputs, belief, over, y)
    for row in range(ROWS):
        if not over[row]:
            assert torch.equal(belief.mean[row], before.mean[row])
            assert torch.equal(belief.covariance[row], before.covariance[row])
            continue
        assert torch.equal(belief.mean[row, 2:], before.mean[row, 2:])
        assert torch.equal(belief.covariance[row, 2:, 2:], before.covariance[row, 2:, 2:])
        assert not belief.covariance[row, :2, 2:].any()
        assert not belief.covariance[row, 2:, :2].any()
        fresh = beliefs.state_prior(D, 1)
        beliefs.correct(inputs, fresh, y[[row]])
        torch.testing.assert_close(belief.mean[row, :2], fresh.mean[0])
        torch.testing.assert_close(belief.covariance[row, :2, :2], fresh.covariance[0])
        assert not torch.equal(belief.mean[row, :2], before.mean[row, :2])


def test_a_beginning_is_the_dense_one():
    inputs, belief = filter_of(emission("loglinear")), some_belief(ROWS, SIZE)
    y = seen_of(inputs.emission, ROWS, 3)
    expected = [filters.begun(inputs.emission, y[row], row_of(belief, row)) for row in range(ROWS)]
    beliefs.restart(inputs, belief, torch.ones(ROWS, dtype=torch.bool), y)
    near = filters.trusted(inputs.emission, 1e-9)
    for row, item in enumerate(expected):
        torch.testing.assert_close(belief.mean[row], item.mean, **near)
        torch.testing.assert_close(belief.covariance[row], item.covariance, **near)


def test_where_no_episode_ended_nothing_changes():
    inputs, belief = filter_of(emission(channels=5)), some_belief(ROWS, SIZE)
    before = copied(belief)
    beliefs.restart(
        inputs, belief, torch.zeros(ROWS, dtype=torch.bool), seen_of(inputs.emission, ROWS, 3)
    )
    assert all(torch.equal(*pair) for pair in zip(belief, before, strict=True))


def test_what_follows_a_beginning_does_not_depend_on_the_state_before():
    inputs, belief = filter_of(emission(channels=5)), some_belief(2, SIZE)
    other = copied(belief)
    other.mean[:, :2] += 1
    other.covariance[:, :2, :2] *= 2
    for item in (belief, other):
        beliefs.restart(inputs, item, torch.ones(2, dtype=torch.bool), drawn(2, 5))
        beliefs.predict(inputs, item, drawn(2, 2))
        beliefs.correct(inputs, item, drawn(2, 5, seed=1))
    assert all(torch.equal(*pair) for pair in zip(belief, other, strict=True))


# What must not matter.


def transitions(inputs: Filter, belief: Belief, order: Tensor) -> Belief:
    """Five of them, one of which ends the episodes of some rows, of rows in this order."""
    belief = Belief(*(part[order].clone() for part in belief))
    for time in range(5):
        beliefs.predict(inputs, belief, drawn(ROWS, D, seed=time)[order])
        beliefs.correct(inputs, belief, seen_of(inputs.emission, ROWS, time)[order])
        over = torch.tensor([time == 2, False, False, time == 3])[order]
        beliefs.restart(inputs, belief, over, seen_of(inputs.emission, ROWS, 10 + time)[order])
    return belief


@pytest.mark.parametrize("case", OBSERVED)
def test_rows_do_not_influence_each_other(case: str):
    inputs, belief = filter_of(emission(*OBSERVED[case])), some_belief(ROWS, SIZE)
    order = torch.tensor([2, 0, 3, 1])
    whole, permuted = (transitions(inputs, belief, rows) for rows in (torch.arange(ROWS), order))
    for item, other in zip(whole, permuted, strict=True):
        torch.testing.assert_close(other, item[order], rtol=1e-12, atol=1e-12)


def test_what_one_row_sees_changes_no_other():
    inputs, belief = filter_of(emission("loglinear")), some_belief(ROWS, SIZE)
    y, other = seen_of(inputs.emission, ROWS, 1), copied(belief)
    beliefs.correct(inputs, belief, y)
    beliefs.correct(inputs, other, torch.where(torch.arange(ROWS)[:, None] == 2, y + 1, y))
    for item, changed in zip(belief, other, strict=True):
        assert not torch.equal(item[2], changed[2])
        assert torch.equal(item[[0, 1, 3]], changed[[0, 1, 3]])


def test_more_channels_of_the_same_do_as_one_with_less_noise():
    few, many = emission(channels=3), emission(channels=3)
    many = many._replace(
        **{name: torch.cat([getattr(many, name)] * 4) for name in ("weight", "bias")}
    )
    many = many._replace(noise_variance=4 * torch.cat([few.noise_variance] * 4))
    y, result = drawn(ROWS, 3), []
    for channels, observed in ((few, y), (many, y.repeat(1, 4))):
        belief = some_belief(ROWS, SIZE)
        beliefs.correct(filter_of(channels), belief, observed)
        result.append(belief)
    for item, other in zip(*result, strict=True):
        torch.testing.assert_close(item, other)


def test_blocks_of_weights_are_those_of_each_output():
    belief = some_belief(3, D + D * 4)
    blocks = beliefs.weight_blocks(D, belief)
    assert blocks.shape == (3, 2, 4, 4)
    assert torch.equal(blocks[1, 0], belief.covariance[1, 2:6, 2:6])
    assert torch.equal(blocks[2, 1], belief.covariance[2, 6:, 6:])


def test_weights_are_a_view_by_output():
    belief = some_belief(3, D + D * 4)
    stored = beliefs.weights(D, belief)
    assert torch.equal(stored[1, 1], belief.mean[1, 6:])
    belief.mean[1, 6] = 5
    assert stored[1, 1, 0] == 5
