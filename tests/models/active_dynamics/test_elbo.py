"""The bound of batches equals plain loops, in value and gradient; its weights by worked numbers."""

from typing import Any

import pytest
import torch
from torch import Generator

from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.elbo import Draws, EncodedWindows
from quatrain.replay import windows
from quatrain.replay.windows import Windows
from tests.conftest import small
from tests.models.active_dynamics.plain_elbo import Case, plain_terms
from tests.models.active_dynamics.small_trainers import COUNTS, configured, make_trainer, replay

TRAINING = {"samples": 4, "horizons": 3, "window": 6, "burn_in": 2, "batch_size": 5, "decay": 0.8}
WINDOW, BURN_IN, BATCH = 6, 2, 5
FORMS: list[dict[str, Any]] = [
    {"masked": False, "dynamics": "mlp", "decoder": "linear"},
    {"masked": True, "dynamics": "deep", "decoder": "mlp"},
    {
        "masked": True,
        "dynamics": "rbf",
        "decoder": "loglinear",
        "observation": {"kind": "loglinear"},
    },
    {"masked": True, "dynamics": "ensemble", "decoder": "loglinear", "observation": COUNTS},
    {"masked": False, "dynamics": "rbf", "observation": COUNTS},
]


def make_case(masked: bool = False, **form: Any) -> Case:
    """Returns a case in double precision, away from initial values that are equal."""
    trainer = make_trainer(config := configured(**form, seq_vae=TRAINING))
    network = trainer.network.double()
    if network.decoder.kind == "known":
        network.decoder.true = network.decoder.true.double()
    with torch.no_grad():
        network.encoder.heads.weights[1][1].normal_(generator=Generator().manual_seed(2))
        network.first_mean.fill_(0.3)
    draws = Generator().manual_seed(4)
    sampled = windows.sample(replay(config), 0, BATCH, config.train.seq_vae.length, draws)
    sampled = Windows(sampled.observations.double(), sampled.actions.double(), sampled.starts)
    encoded = elbo.encode_windows(network, sampled, BURN_IN)
    numbers = elbo.draw(network.members, 4, 3, encoded, draws)
    numbers = elbo.add_mask(numbers, 0.4, draws) if masked else numbers
    return Case(network, sampled, numbers, BURN_IN)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: " ".join(map(str, form.values())))
def test_terms_and_gradients_are_those_of_plain_loops(form: dict[str, Any]):
    case, masked = make_case(**form), form["masked"]
    network, weights = case.network, case.network.horizon_mask_weights.double()
    assert (case.draws.keep_mask is None) != masked
    by_horizon = losses.horizon_weights(3, 0.8).tolist()
    windows = [plain_terms(case, by_horizon, window) for window in range(BATCH)]
    plain = tuple(torch.stack(part, -1) for part in zip(*windows, strict=True))
    actual, results = elbo.compute_terms(network, case.encoded, case.draws, weights)[:3], []
    for terms in (actual, plain):
        network.zero_grad()
        ell, kl_first, kl_steps = terms
        (kl_first.sum() + 2 * kl_steps.sum() - 3 * ell.sum()).backward()
        results.append([*terms, *(param.grad.clone() for param in network.parameters())])
    for value, expected in zip(*results, strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-11)


def test_one_step_without_masks_is_the_exact_bound():
    """Masks and further horizons do not change the exact bound."""
    case = make_case(dynamics="ensemble", masked=True)
    network, free = case.network, case.draws._replace(keep_mask=None, replacement=None)
    weights, single = torch.ones(1, WINDOW - 1).double(), free._replace(steps=free.steps[:0])
    terms = elbo.compute_terms(network, case.encoded, single, weights)
    exact = elbo.evidence_bound(network, case.encoded, case.draws)
    torch.testing.assert_close(exact, (terms.ell - terms.kl_first - terms.kl_steps).mean(0))
    terms = elbo.compute_terms(network, case.encoded, free, network.horizon_mask_weights.double())
    torch.testing.assert_close(exact, terms.bound.mean(0))


def test_nothing_after_the_end_of_an_episode_counts_in_the_exact_bound():
    case, in_episode = make_case(dynamics="rbf"), torch.ones(WINDOW, BATCH, dtype=torch.float64)
    in_episode[4:, 1], in_episode[2:, 2] = 0, 0
    bound = elbo.evidence_bound(case.network, case.encoded, case.draws, in_episode)
    for window, times in ((0, 6), (1, 4), (2, 2)):
        encoded = EncodedWindows(*(part[:, :times, [window]] for part in case.encoded))
        posterior = case.draws.posterior[..., :times, [window]]
        draws = Draws(posterior, case.draws.steps[..., : times - 1, [window]])
        alone = elbo.evidence_bound(case.network, encoded, draws)
        torch.testing.assert_close(bound[window], alone[0])


def test_the_first_of_a_window_is_never_masked_and_others_as_often_as_asked():
    encoded = EncodedWindows(*(part.repeat(1, 20, 40) for part in make_case().encoded))
    draws = Generator().manual_seed(0)
    keep_mask = elbo.add_mask(elbo.draw(1, 1, 2, encoded, draws), 0.3, draws).keep_mask
    assert keep_mask[0].all()
    assert float(keep_mask[1:].double().mean()) == pytest.approx(0.7, abs=0.01)


def test_worked_weights_of_horizons():
    """Horizons beyond the window have no weight."""
    weights = losses.horizon_weights(3, 0.8)
    assert weights.tolist() == pytest.approx([0.409836, 0.327869, 0.262295], abs=1e-6)
    masked = losses.horizon_mask_weights(torch.tensor([0.5, 0.25, 0.125]), 4)
    assert masked.tolist() == [[0.5, 0.5, 0.5], [0.25, 0.25, 0], [0.125, 0, 0]]


@pytest.mark.parametrize(
    ("kind", "updates", "expected"),
    [("linear", 0, 0), ("linear", 200, 0.35), ("linear", 800, 0.7), ("none", 0, 0.7)],
)
def test_beta_rises_along_a_line_or_at_once(kind: str, updates: int, expected: float):
    changes = {"anneal_kind": kind, "anneal": 400, "beta": 0.7}
    config = small("active_dynamics", train={"seq_vae": changes}).train.seq_vae
    assert losses.beta_at(config, updates) == pytest.approx(expected)
