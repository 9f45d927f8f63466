"""Weights of the loss terms by worked numbers; `test_elbo` has the terms themselves."""

import pytest
import torch

from quatrain.models.active_dynamics import losses
from tests.conftest import small


def test_worked_weights_of_horizons():
    """Horizons beyond the window have no weight."""
    weights = losses.horizon_weights(3, 0.8)
    assert weights.tolist() == pytest.approx([0.409836, 0.327869, 0.262295], abs=1e-6)
    masked = losses.horizon_mask_weights(torch.tensor([0.5, 0.25, 0.125]), 4)
    assert masked.tolist() == [[0.5, 0.5, 0.5], [0.25, 0.25, 0], [0.125, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "updates", "expected"),
    [
        *(("linear", updates, beta) for updates, beta in ((0, 0), (200, 0.35), (800, 0.7))),
        ("none", 0, 0.7),
    ],
)
def test_beta_rises_along_a_line_or_at_once(kind: str, updates: int, expected: float):
    changes = {"anneal_kind": kind, "anneal": 400, "beta": 0.7}
    config = small("active_dynamics", train={"seq_vae": changes}).train.seq_vae
    assert losses.beta_at(config, updates) == pytest.approx(expected)


def test_terms_and_weights_have_the_same_names():
    weights = losses.weights(20, 300, 0.5)
    assert list(weights.values()) == [-0.05, 0.025, 0.025, 1 / 300]
    assert tuple(weights) == losses.TERMS["seq_vae"]


def test_worked_prior_of_weights():
    assert float(losses.weight_prior(torch.tensor([[1.0, 2.0], [0.0, 3.0]]), 0.5)) == 14
