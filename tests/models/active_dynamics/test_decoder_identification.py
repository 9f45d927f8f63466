"""Channels learned from a warm-up, and states of one gauge read in another."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.bayes_filter import learner as bayes_filter
from quatrain.models.active_dynamics.bayes_filter.channels import LearnedChannels
from quatrain.models.active_dynamics.collect import Dataset, Rollouts, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import (
    WarmupTransitions,
    fit_affine,
    identify_decoder,
)
from quatrain.models.active_dynamics.learner import AffineAlignment
from tests.conftest import small
from tests.models.active_dynamics.filters import drawn, emission

REPLICATES, CHANNELS, WARMUP = 3, 50, 2000
CONTROL = [[0.8, 0.3], [-0.5, 0.9]]
WIDE = [[0.7, 0.2, -0.4], [0.1, -0.8, 0.5]]
"""B of three numbers of an action."""


# Channels of a warm-up.


@cache
def configured(
    control: str = "identity", episode: int | None = None, arms: tuple[str, ...] = ("random",)
) -> Any:
    selected = {"identity": None, "square": CONTROL, "wide": WIDE}[control]
    return small(
        "active_dynamics",
        seeds=REPLICATES,
        env={
            "control": selected,
            "episode_transitions": episode,
            "observation": {"channels": CHANNELS},
        },
        collect={"warmup": WARMUP},
        network={"decoder": "linear"},
        train={"arms": list(arms), "transitions": WARMUP + 10},
    )


def collected(control: str = "identity", episode: int | None = None) -> Dataset:
    return kept(control, episode)


@cache
def kept(control: str, episode: int | None) -> Dataset:
    return collect(configured(control, episode), 5)


def relative(result: Tensor, truth: Tensor) -> float:
    return float((result - truth).norm() / truth.norm())


@pytest.mark.parametrize(
    ("control", "episode"), [("identity", None), ("square", None), ("wide", 40)]
)
def test_channels_are_found_within_5_percent_and_their_noise_too(control: str, episode: int | None):
    config, dataset = configured(control, episode), collected(control, episode)
    assert dataset.train.truncated.any() == (episode is not None)
    learned = bayes_filter.identify_channels(config, dataset)
    assert learned.weight.shape == (REPLICATES, CHANNELS, 2)
    truth = torch.tensor(dataset.emission.weight).double()
    for weight, _, variance in zip(*learned, strict=True):
        assert relative(weight, truth) < 0.05
        assert variance.unique().numel() == 1
        assert float(variance[0]) == pytest.approx(0.1**2, rel=0.02)


def test_the_origin_of_learned_channels_is_the_mean_state():
    dataset = collected()
    emission = dataset.emission
    for replicate, bias in enumerate(bayes_filter.identify_channels(configured(), dataset).bias):
        middle = emission.weight @ dataset.train.states[replicate].mean(0) + emission.bias
        torch.testing.assert_close(
            bias, torch.tensor(middle).double(), atol=5 * 0.1 / WARMUP**0.5, rtol=0
        )


def test_replicates_learn_channels_of_their_own_and_arms_share_them():
    config = configured(arms=("active", "random"))
    learned = bayes_filter.identify_channels(config, collected())
    alone = bayes_filter.identify_channels(configured(), collected())
    for both, item in zip(learned, alone, strict=True):
        assert torch.equal(both, torch.cat([item, item]))
    assert not torch.equal(alone.weight[0], alone.weight[1])


def spoiled(train: Rollouts) -> Rollouts:
    """What was seen last of an episode is something else."""
    wrong = np.where(train.truncated[..., None], 100.0, train.next_observations).astype(np.float32)
    return train._replace(next_observations=wrong)


def test_transitions_that_were_truncated_are_left_out():
    config, dataset = configured("identity", 40), collected("identity", 40)
    assert dataset.train.truncated.sum() == REPLICATES * (WARMUP // 40)
    result = bayes_filter.identify_channels(config, dataset)
    expected = bayes_filter.identify_channels(
        config, dataset._replace(train=spoiled(dataset.train))
    )
    assert all(torch.equal(*pair) for pair in zip(result, expected, strict=True))
    intact = dataset.train._replace(truncated=np.zeros_like(dataset.train.truncated))
    wrong = bayes_filter.identify_channels(
        config, dataset._replace(train=spoiled(intact._replace(truncated=FIRST)))
    )
    assert not torch.equal(wrong.weight, result.weight)


FIRST = np.arange(WARMUP) * np.ones((REPLICATES, 1)) == 0
"""Only the first transition of each replicate is truncated."""


def noise_free(
    transitions: int = 300, channels: int = 7, d: int = 3
) -> tuple[WarmupTransitions, Tensor]:
    """A cubic flow that is seen as it is, but for a millionth; and the channels' C."""
    weight, bias = drawn(channels, d, seed=1), drawn(channels, seed=2)
    draws, x, path = Generator().manual_seed(3), torch.zeros(d, dtype=torch.float64), []
    u = 2 * torch.rand(transitions, d, generator=draws, dtype=torch.float64) - 1
    for push in u:
        path.append(x)
        x = x + 0.1 * (x.roll(1) * 0.5 - x**3 - 0.3 * x[0] * x[1] * x[2] + push)
    states, after = torch.stack(path), torch.stack([*path[1:], x])
    y, next_y = (item @ weight.T + bias for item in (states, after))
    return WarmupTransitions(y, next_y, u, torch.ones(transitions, dtype=torch.bool)), weight


def test_channels_of_a_cubic_flow_without_noise_are_exact():
    observed, weight = noise_free()
    result = identify_decoder(observed, 0.1)
    torch.testing.assert_close(result.weight, weight, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(result.bias, observed.observations.mean(0))
    assert (result.noise_variance > 0).all()
    assert (result.noise_variance < 1e-5).all()


def test_a_longer_transition_of_the_same_data_means_weaker_channels():
    """x moves by u dt: with twice the dt the same observations are those of states twice as far."""
    observed, weight = noise_free()
    torch.testing.assert_close(
        identify_decoder(observed, 0.2).weight, weight / 2, rtol=1e-6, atol=1e-6
    )


def test_the_same_data_gives_the_same_channels_to_the_bit():
    """Whatever memory holds that was used before."""
    observed, _ = noise_free()
    first = identify_decoder(observed, 0.1)
    for number in range(20):
        _ = torch.full((12 + number,), number, dtype=torch.int32)
        again = identify_decoder(observed, 0.1)
        assert all(torch.equal(*pair) for pair in zip(first, again, strict=True))


def test_states_of_learned_channels_see_what_is_seen():
    """y = C x + b with the states that these channels mean, up to noise."""
    dataset = collected()
    learned = bayes_filter.identify_channels(configured(), dataset)
    y = torch.tensor(dataset.train.observations[1]).double()
    states = (y - learned.bias[1]) @ torch.linalg.pinv(learned.weight[1]).T
    left = (y - states @ learned.weight[1].T - learned.bias[1]).square().mean()
    assert float(left) == pytest.approx(0.1**2 * (CHANNELS - 2) / CHANNELS, rel=0.02)


def test_learned_channels_offer_what_true_ones_do():
    inputs = emission(channels=5)
    rows = LearnedChannels(*(part.expand(4, *part.shape) for part in inputs[2:]))
    x, y = drawn(4, 2), drawn(4, 5, seed=1)
    torch.testing.assert_close(rows.mean(x), inputs.mean(x))
    torch.testing.assert_close(rows.variance(x), inputs.variance(x).expand(4, 5))
    torch.testing.assert_close(rows.precision(x), inputs.precision(x))
    torch.testing.assert_close(rows.information_vector(y, x), inputs.information_vector(y, x))
    single = LearnedChannels(*(part.float() for part in rows)).double()
    assert all(part.dtype == torch.float64 for part in single)


# Gauges.


def turned(degrees: float, scale: float) -> Tensor:
    angle = torch.deg2rad(torch.tensor(degrees, dtype=torch.float64))
    return scale * torch.stack(
        [torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])]
    )


def alignments() -> AffineAlignment:
    """Of three rows: as it is, a quarter turn and a shift, something else that does not keep
    angles.
    """
    skewed = torch.tensor([[2.0, 0.5], [0.0, 0.4]], dtype=torch.float64)
    turn = torch.stack([torch.eye(2, dtype=torch.float64), turned(90, 1), skewed])
    return AffineAlignment(
        turn, torch.tensor([[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7]], dtype=torch.float64)
    )


def test_a_state_one_knows_is_turned_and_shifted():
    z = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 1.0]]], dtype=torch.float64)
    expected = torch.tensor([[[1.0, 0.0]], [[0.3, 0.8]], [[1.5, 1.1]]], dtype=torch.float64)
    torch.testing.assert_close(alignments().to_state(z), expected)


def test_inward_undoes_outward():
    x = drawn(3, 5, 2)
    torch.testing.assert_close(alignments().to_state(alignments().to_latent(x)), x)
    torch.testing.assert_close(alignments().to_latent(alignments().to_state(x)), x)


def test_points_that_all_rows_share_are_read_by_each_row():
    x = drawn(5, 2)
    torch.testing.assert_close(
        alignments().to_latent(x.expand(3, -1, -1)),
        alignments().to_latent(x.expand(3, 5, 2).clone()),
    )


def field(x: Tensor) -> Tensor:
    return torch.stack([x[..., 1] ** 2, x[..., 0] - 0.5 * x[..., 1]], -1)


def test_a_turned_and_shifted_field_reads_as_the_field():
    """A learner with z = A⁻¹ (x - c) and the field A⁻¹ f(A z + c) knows f."""
    alignment, x = alignments(), drawn(3, 6, 2)

    def of_learner(z: Tensor) -> Tensor:
        at = torch.einsum("rij,rpj->rpi", alignment.matrix, z) + alignment.offset[:, None]
        return torch.einsum("rij,rpj->rpi", alignment.matrix.inverse(), field(at))

    torch.testing.assert_close(alignment.to_velocity(of_learner(alignment.to_latent(x))), field(x))


def test_velocities_are_what_states_move_by():
    z, v, step = drawn(3, 6, 2), drawn(3, 6, 2, seed=1), 1e-6
    moved = (alignments().to_state(z + step * v) - alignments().to_state(z)) / step
    torch.testing.assert_close(alignments().to_velocity(v), moved, rtol=1e-6, atol=1e-6)


def test_spread_is_the_variance_of_velocities():
    variance = drawn(3, 4, 2).square() + 0.1
    alignment = alignments()
    for row in range(3):
        for point in range(4):
            whole = (
                alignment.matrix[row] @ torch.diag(variance[row, point]) @ alignment.matrix[row].T
            )
            torch.testing.assert_close(
                alignment.to_velocity_variance(variance)[row, point], whole.diagonal()
            )


def test_spread_of_a_quarter_turn_swaps_the_axes():
    variance = torch.tensor([[4.0, 9.0]], dtype=torch.float64).expand(3, 1, 2)
    torch.testing.assert_close(
        alignments().to_velocity_variance(variance)[1, 0],
        torch.tensor([9.0, 4.0], dtype=torch.float64),
    )


def test_alignment_finds_the_gauge():
    z, alignment = drawn(40, 2), alignments()
    x = z @ alignment.matrix[2].T + alignment.offset[2]
    matrix, offset = fit_affine(z.float(), x.float())
    torch.testing.assert_close(matrix, alignment.matrix[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(offset, alignment.offset[2], rtol=1e-5, atol=1e-5)


def test_alignment_is_least_squares():
    z, x = drawn(40, 2), drawn(40, 2, seed=1)
    matrix, offset = fit_affine(z, x)
    left = x - z @ matrix.T - offset
    torch.testing.assert_close(
        left.mean(0), torch.zeros(2, dtype=torch.float64), atol=1e-12, rtol=0
    )
    torch.testing.assert_close(
        left.T @ z, torch.zeros(2, 2, dtype=torch.float64), atol=1e-10, rtol=0
    )


def test_a_filter_that_learned_its_channels_reads_states_by_them():
    """True states of a warm-up are those of the learned channels, read outward; of known channels
    they are the same.
    """
    config, dataset = configured(arms=("active", "random")), collected()
    rows = bayes_filter.BayesFilterLearner.init(config, dataset, np.random.SeedSequence(0))
    alignment = rows.alignment(rows.weights, dataset.held_out)
    assert alignment.matrix.shape == (config.learners, 2, 2)
    for row in range(config.learners):
        local = rows.decoder[:2]
        weight, bias = local[0][row], local[1][row]
        x = drawn(4, 2)
        observed = x @ torch.tensor(dataset.emission.weight).double().T + torch.tensor(
            dataset.emission.bias
        )
        z = (observed - bias) @ torch.linalg.pinv(weight).T
        read = z @ alignment.matrix[row].T + alignment.offset[row]
        torch.testing.assert_close(read, x, atol=0.06, rtol=0.05)
        assert alignment.offset[row].abs().max() > 0.001


def test_channels_of_turned_and_shifted_states_give_the_gauge_itself():
    """What C x + b shows is C A z + (b + C c) of x = A z + c."""
    config, dataset, alignment = configured(), collected(), alignments()
    rows = bayes_filter.BayesFilterLearner.init(config, dataset, np.random.SeedSequence(0))
    weight, bias = (torch.tensor(part).double() for part in dataset.emission[:2])
    observed = (
        weight @ alignment.matrix,
        bias + alignment.offset @ weight.T,
        torch.ones(REPLICATES, CHANNELS).double(),
    )
    rows.decoder = LearnedChannels(*observed)
    for result, expected in zip(
        rows.alignment(rows.weights, dataset.held_out), alignment, strict=True
    ):
        torch.testing.assert_close(result, expected, rtol=1e-6, atol=1e-6)


def reference(config: ActiveDynamicsConfig) -> ActiveDynamicsConfig:
    return config.model_copy(
        update={"network": config.network.model_copy(update={"decoder": "known"})}
    )


def test_a_filter_that_knows_its_channels_means_true_states():
    config, dataset = reference(configured()), collected()
    rows = bayes_filter.BayesFilterLearner.init(config, dataset, np.random.SeedSequence(0))
    assert rows.decoder is None
    alignment, x = rows.alignment(rows.weights, dataset.held_out), drawn(REPLICATES, 4, 2)
    assert torch.equal(alignment.to_state(x), x)
    assert torch.equal(alignment.to_latent(x), x)
    assert torch.equal(alignment.to_velocity_variance(x.square()), x.square())


class State(NamedTuple):
    """As far as rows are concerned."""

    params: Any
    decoder: Any
    family_state: Any


def test_learned_channels_are_those_that_rows_begin_and_go_on_with():
    config, dataset = configured(arms=("active", "random")), collected()
    rows = bayes_filter.BayesFilterLearner.init(config, dataset, np.random.SeedSequence(0))
    expected = bayes_filter.identify_channels(config, dataset)
    again = bayes_filter.BayesFilterLearner.from_state(config, dataset, State(**rows.to_state()))
    for item in (rows, again):
        assert all(torch.equal(*pair) for pair in zip(item.filter.emission, expected, strict=True))
    for row in range(config.learners):
        weight, bias, variance = (part[row] for part in expected)
        y = torch.tensor(dataset.train.observations[row % REPLICATES, 0]).double()
        precision = 3 * torch.eye(2) + weight.T @ (weight / variance[:, None])
        x = torch.linalg.solve(precision, weight.T @ ((y - bias) / variance))
        torch.testing.assert_close(rows.belief.mean[row, :2], x, rtol=1e-6, atol=1e-7)
