"""The plain planner, filter and world find what can be worked out otherwise."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.reference import active_dynamics_filter as plain_filter
from benchmarks.reference import active_dynamics_planner as plain_planner
from benchmarks.reference import active_dynamics_world as plain_world


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


# Planning.


def model_of(side: int = 3, obs: int = 7) -> plain_planner.Model:
    axis = torch.linspace(-2, 2, side)
    count = 2 * side**2
    prior = torch.randn(count, count)
    return plain_planner.Model(
        centres=torch.cartesian_prod(axis, axis),
        weight=0.3 * torch.randn(2, side**2),
        length=0.8,
        dt=0.1,
        observation_matrix=torch.randn(obs, 2),
        covariance=torch.diag(torch.rand(obs) + 0.1),
        prior=prior @ prior.T / count + 0.1 * torch.eye(count),
    )


def test_sensitivities_are_the_gradients():
    model, actions, start = model_of(), torch.randn(4, 2), torch.tensor([0.3, -0.2])

    def ends(weight: Tensor) -> Tensor:
        rollout = plain_planner.imagined(model._replace(weight=weight), start, actions)
        return torch.stack([step["state"] for step in rollout])

    expected = torch.autograd.functional.jacobian(ends, model.weight).flatten(2)
    result = torch.stack(
        plain_planner.sensitivities(model, plain_planner.imagined(model, start, actions))
    )
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-6)


def test_what_the_original_inverts_is_the_identity_whatever_the_noise():
    model = model_of()
    torch.testing.assert_close(plain_planner.of_projection(model), torch.eye(2), rtol=0, atol=1e-3)
    expected = (
        model.observation_matrix.T
        @ torch.diag(1 / model.covariance.diagonal())
        @ model.observation_matrix
    )
    torch.testing.assert_close(plain_planner.of_noise(model), expected)
    assert not torch.allclose(expected, torch.eye(2), atol=0.5)


def test_what_each_weight_tells_is_all_there_is_to_tell_of_one_alone():
    model = model_of()
    rollout = plain_planner.imagined(model, torch.zeros(2), torch.randn(5, 2))
    prior = torch.diag(model.prior.diagonal())
    each = plain_planner.diagonal_drop(model, rollout, plain_planner.of_noise)
    together = plain_planner.full_drop(model._replace(prior=prior), rollout, plain_planner.of_noise)
    assert each > 1.05 * together
    alone = torch.zeros_like(prior)
    alone[4, 4], model = prior[4, 4], model._replace(prior=torch.diag(torch.full((18,), 1e-9)))
    model.prior[4, 4] = alone[4, 4]
    each = plain_planner.diagonal_drop(model, rollout, plain_planner.of_noise)
    assert each == pytest.approx(
        plain_planner.full_drop(model, rollout, plain_planner.of_noise), rel=1e-3
    )


def test_plain_search_finds_the_best_action():
    model, settings = (
        model_of(),
        plain_planner.Settings(candidates=48, iterations=12, horizon=3, elites=8, keep=2),
    )
    result = plain_planner.plan(
        model,
        torch.zeros(2),
        lambda rollout: -sum((step["action"] - 0.5).square().sum().item() for step in rollout),
        settings,
        np.random.default_rng(0),
    )
    torch.testing.assert_close(result.mean, torch.full((3, 2), 0.5), atol=0.2, rtol=0)
    assert result.scores == sorted(result.scores, reverse=True)


@pytest.mark.parametrize("times", [7, 10])
def test_coloured_noise_has_unit_variance_at_each_time(times):
    rng = np.random.default_rng(0)
    draws = np.concatenate([plain_planner.coloured((times, 2), 1.0, rng) for _ in range(2000)], 1)
    np.testing.assert_allclose(draws.std(1), 1, atol=0.06)


# Filtering, and the world.


def test_dense_filter_is_the_one_worked_out_by_hand():
    model = plain_filter.Model(
        torch.zeros(1, 1), 1e6, 0.1, 0.1, torch.ones(1, 1), torch.zeros(1), torch.tensor([0.02])
    )
    belief = plain_filter.Belief(torch.zeros(2), torch.diag(torch.tensor([0.01, 1.0])))
    predicted = plain_filter.predict(model, belief, torch.tensor([0.5]))
    torch.testing.assert_close(predicted.mean, torch.tensor([0.05, 0.0]))
    torch.testing.assert_close(predicted.covariance, torch.tensor([[0.03, 0.1], [0.1, 1.0]]))
    [corrected] = plain_filter.step(model, [belief], torch.tensor([[0.5]]), torch.tensor([[0.2]]))
    torch.testing.assert_close(corrected.belief.mean, torch.tensor([0.14, 0.3]))
    torch.testing.assert_close(
        corrected.belief.covariance, torch.tensor([[0.012, 0.04], [0.04, 0.8]])
    )


def test_table_made_anew_reads_its_nodes():
    rng = np.random.default_rng(0)
    table = plain_world.Table(
        (np.linspace(-1, 1, 3), np.linspace(0, 2, 5)), rng.standard_normal((3, 5, 2))
    )
    np.testing.assert_allclose(table([0.0, 1.5]), table.vectors[1, 3])
    np.testing.assert_allclose(table([0.5, 0.25]), table.vectors[1:3, 0:2].mean((0, 1)))
    np.testing.assert_allclose(table([7.0, -3.0]), table.vectors[2, 0])


def test_a_plain_step_is_the_one_worked_out_by_hand():
    world = plain_world.World(
        plain_world.limit_cycle, 0.1, 0.01, 1.0, 3.0, [[2.0, 0.0], [1.0, 1.0]], [0.0, 1.0], 0.1
    )
    noise = plain_world.Noise([1.0, 0.0], [0.0, 1.0], [0.5, -0.5], [0.0, 0.0])
    quiet = noise._replace(process=[0.0, 0.0])
    result = plain_world.step(
        world, [[0.5, 0.0], [2.9, 0.0]], [[0.1, -0.2], [5.0, 0.0]], [quiet, noise]
    )
    assert result[0].state == pytest.approx([0.5475, 0.03])
    assert result[0].observation == pytest.approx([1.095, 1.6775])
    assert result[0].truncated is False
    away = plain_world.step(
        world._replace(field=lambda _: [50.0, 0.0]), [[2.9, 0.0]], [[0.0, 0.0]], [noise]
    )
    assert away[0].truncated
    assert away[0].state == [0.5, -0.5]
    moved = plain_world.step(
        world._replace(field=lambda _: [0.0, 0.0]), [[0.0, 0.0]], [[5.0, 0.0]], [noise]
    )
    assert moved[0].state == pytest.approx([0.1 + 0.001**0.5, 0])


def test_drawn_field_has_one_speed_but_for_the_pull():
    table = plain_world.multi_attractor(np.random.default_rng(0), side=12, w_attractor=0.0)
    np.testing.assert_allclose(np.linalg.norm(table.vectors, axis=-1), 0.25, rtol=1e-6)


def test_drawn_component_has_the_kernels_covariance():
    rng = np.random.default_rng(0)
    draws = np.stack([plain_world.drawn_component(rng, side=5).ravel() for _ in range(4000)])
    axis = np.linspace(-2, 2, 5)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    np.testing.assert_allclose(np.cov(draws.T), 0.5 * plain_world.kernel(nodes, 0.5), atol=0.06)
