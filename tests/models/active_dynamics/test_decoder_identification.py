"""Channels identified from a warm-up, and states of one alignment read in another."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import Generator

from quatrain.models.active_dynamics.bayes_filter import learner as learners
from quatrain.models.active_dynamics.bayes_filter.filter import LearnedChannels
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.decoder_identification import fit_affine, identify_decoder
from quatrain.models.active_dynamics.family import AffineAlignment, Moments
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.filters import drawn
from tests.models.active_dynamics.small_trials import configured

REPLICATES, CHANNELS, WARMUP = 3, 50, 2000
WIDE = ((0.7, 0.2, -0.4), (0.1, -0.8, 0.5))
"""B of three numbers of an action."""


@cache
def case(
    control: tuple[tuple[float, ...], ...] | None = None, episode: int | None = None
) -> tuple[ActiveDynamicsConfig, Dataset]:
    config = configured(
        seeds=REPLICATES,
        env={
            "control": control,
            "episode_transitions": episode,
            "observation": {"channels": CHANNELS},
        },
        collect={"warmup": WARMUP},
        network={"decoder": "linear"},
        train={"transitions": WARMUP + 10},
    )
    with shapes_unchecked():
        return config, collect(config, 5)


def identify_channels(config: ActiveDynamicsConfig, dataset: Dataset) -> LearnedChannels:
    train = dataset.train
    return learners.identify_channels(config, train, ~train.truncated)


@pytest.mark.parametrize(("control", "episode"), [(None, None), (WIDE, 40)])
def test_channels_and_noise_are_identified_within_a_few_percent(
    control: tuple[tuple[float, ...], ...] | None, episode: int | None
):
    config, dataset = case(control, episode)
    learned = identify_channels(config, dataset)
    weight, bias, _ = dataset.emission
    for row in range(2 * REPLICATES):
        error = learned.weight[row] - torch.tensor(weight).double()
        assert error.norm() < 0.05 * float(np.linalg.norm(weight))
        assert learned.noise_variance[row].unique().numel() == 1
        assert float(learned.noise_variance[row, 0]) == pytest.approx(0.1**2, rel=0.02)
        # The origin is the mean state.
        mean = weight @ dataset.train.states[row % REPLICATES].mean(0) + bias
        np.testing.assert_allclose(learned.bias[row], mean, atol=5 * 0.1 / WARMUP**0.5)


def test_truncated_transitions_are_left_out():
    """Their last observation may be anything."""
    config, dataset = case(WIDE, 40)
    train = dataset.train
    assert train.truncated.sum() == REPLICATES * (WARMUP // 40)

    def with_wrong(places: np.ndarray) -> LearnedChannels:
        wrong = np.where(places[..., None], np.float32(100), train.next_observations)
        rollouts = train._replace(next_observations=wrong)
        return identify_channels(config, dataset._replace(train=rollouts))

    expected = identify_channels(config, dataset)
    for part, other in zip(with_wrong(train.truncated), expected, strict=True):
        assert torch.equal(part, other)
    assert not torch.equal(with_wrong(np.roll(train.truncated, 1, 1)).weight, expected.weight)


def test_channels_of_a_cubic_flow_without_noise_are_exact():
    """With twice the dt, the same observations are those of states twice as far."""
    weight, bias = drawn(7, 3, seed=1), drawn(7, seed=2)
    u = 2 * torch.rand(300, 3, generator=Generator().manual_seed(3), dtype=torch.float64) - 1
    states = [torch.zeros(3, dtype=torch.float64)]
    for push in u:
        x = states[-1]
        states.append(x + 0.1 * (x.roll(1) * 0.5 - x**3 - 0.3 * x.prod() + push))
    y = torch.stack(states) @ weight.T + bias
    warmup = y[:-1], y[1:], u, torch.ones(300, dtype=torch.bool)
    first = identify_decoder(*warmup, 0.1)
    torch.testing.assert_close(first.weight, weight, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(first.bias, y[:-1].mean(0))
    assert ((first.noise_variance > 0) & (first.noise_variance < 1e-5)).all()
    slow = identify_decoder(*warmup, 0.2)
    torch.testing.assert_close(slow.weight, weight / 2, rtol=1e-6, atol=1e-6)


# Alignments.


def alignments() -> AffineAlignment:
    """Returns the identity, a quarter turn with a shift, and a map that keeps no angles."""
    matrices = [[[1, 0], [0, 1]], [[0, -1], [1, 0]], [[2.0, 0.5], [0.0, 0.4]]]
    offsets = [[0.0, 0.0], [0.3, -0.2], [-1.0, 0.7]]
    return AffineAlignment(*(torch.tensor(part).double() for part in (matrices, offsets)))


def test_states_velocities_and_their_variance_are_turned():
    alignment, v, step = alignments(), drawn(3, 6, 2), 1e-6
    z = torch.tensor([[[1.0, 0.0]], [[1.0, 0.0]], [[1.0, 1.0]]]).double()
    x = torch.tensor([[[1.0, 0.0]], [[0.3, 0.8]], [[1.5, 1.1]]]).double()
    torch.testing.assert_close(alignment.to_state(z), x, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(alignment.to_latent(x), z, rtol=1e-6, atol=1e-6)
    moved = alignment.to_state(step * v) - alignment.to_state(0 * v)
    torch.testing.assert_close(alignment.to_velocity(v), moved / step, rtol=1e-6, atol=1e-6)
    whole = alignment.matrix[:, None] @ torch.diag_embed(v**2) @ alignment.matrix[:, None].mT
    variance = alignment.to_field(Moments(v, v**2)).variance
    torch.testing.assert_close(variance, whole.diagonal(dim1=2, dim2=3))


def test_the_affine_fit_finds_the_alignment():
    z, alignment = drawn(40, 2), alignments()
    matrix, offset = fit_affine(z.float(), alignment.to_state(z.expand(3, -1, -1))[2].float())
    torch.testing.assert_close(matrix, alignment.matrix[2], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(offset, alignment.offset[2], rtol=1e-5, atol=1e-5)


def test_the_alignment_of_a_learner_is_that_of_its_channels():
    """C x + b with x = A z + c is C A z + (b + C c)."""
    config, dataset = case()
    learned = identify_channels(config, dataset)
    learner = BayesFilterLearner.init(config, dataset, np.random.SeedSequence(0))
    for part, other in zip(learner.filter.emission, learned, strict=True):
        assert torch.equal(part, other)
    weight, bias = (torch.tensor(part).double() for part in dataset.emission[:2])
    expected = alignments()
    learner.decoder = LearnedChannels(
        weight @ expected.matrix, bias + expected.offset @ weight.T, torch.ones(3, 50).double()
    )
    actual = learner.alignment(learner.weights, dataset.held_out)
    for part, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(part, other, rtol=1e-6, atol=1e-6)
