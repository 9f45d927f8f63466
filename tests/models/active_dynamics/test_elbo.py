"""The bound of batches equals plain loops, in value and gradient; masked parts add nothing."""

from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.elbo import Draws, EncodedWindows
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from quatrain.replay import windows
from quatrain.replay.windows import Windows
from tests.models.active_dynamics.plain_elbo import Case, plain_terms
from tests.models.active_dynamics.small_trainers import COUNTS, configured, make_trainer, replay

TRAINING = {"samples": 4, "horizons": 3, "window": 6, "burn_in": 2, "batch_size": 5, "decay": 0.8}
FORMS: dict[str, dict[str, Any]] = {
    "linear dynamics": {"dynamics": "linear"},
    "an MLP, learned channels": {"dynamics": "mlp", "decoder": "linear"},
    "deep, channels by an MLP": {"dynamics": "deep", "decoder": "mlp"},
    "radial basis functions": {"dynamics": "rbf"},
    "an ensemble, learned rates": {
        "dynamics": "ensemble",
        "decoder": "loglinear",
        "observation": COUNTS,
    },
    "learned exponentials": {
        "dynamics": "rbf",
        "decoder": "loglinear",
        "observation": {"kind": "loglinear"},
    },
    "known rates": {"dynamics": "mlp", "observation": COUNTS},
}


def make_case(masked: bool = False, **form: Any) -> Case:
    """Returns a case in double precision."""
    case = make_trainer(config := configured(**form, seq_vae=TRAINING))
    network = case.network.double()
    with torch.no_grad():  # away from what all begin with
        network.encoder.heads.weights[1][1].normal_(generator=Generator().manual_seed(2))
        network.first_mean.fill_(0.3)
    ring, draws = replay(config), Generator().manual_seed(4)
    sampled = windows.sample(ring, 0, TRAINING["batch_size"], config.train.seq_vae.length, draws)
    sampled = Windows(sampled.observations.double(), sampled.actions.double(), sampled.starts)
    scene = elbo.encode_windows(network, sampled, TRAINING["burn_in"])
    drawn = elbo.draw(network.members, TRAINING["samples"], TRAINING["horizons"], scene, draws)
    return Case(
        network, sampled, elbo.add_mask(drawn, 0.4, draws) if masked else drawn, TRAINING["burn_in"]
    )


def with_gradients(network: SeqVae, terms: Any) -> dict[str, Tensor]:
    """Terms, and the gradient of their sum with a weight each."""
    network.zero_grad()
    ell, kl_first, kl_steps = terms
    (kl_first.sum() + 2 * kl_steps.sum() - 3 * ell.sum()).backward()
    result = {"ell": ell, "kl_first": kl_first, "kl_steps": kl_steps}
    return {name: value.detach() for name, value in result.items()} | {
        name: param.grad.clone() for name, param in network.named_parameters()
    }


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_terms_and_gradients_are_those_of_plain_loops(form: str, masked: bool):
    case = make_case(masked, **FORMS[form])
    network = case.network
    assert (case.draws.keep_mask is None) != masked
    scored = elbo.compute_terms(
        network, case.scene, case.draws, network.horizon_mask_weights.double()
    )
    actual = with_gradients(network, (scored.ell, scored.kl_first, scored.kl_steps))
    weights = network.horizon_mask_weights[:, 0].double().tolist()
    each = [plain_terms(case, weights, window) for window in range(TRAINING["batch_size"])]
    expected = with_gradients(
        network, [torch.stack(parts, -1) for parts in zip(*each, strict=True)]
    )
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-9, atol=1e-11)


def test_in_single_precision_the_terms_are_the_same():
    case = make_case(dynamics="mlp", decoder="linear")
    expected = elbo.compute_terms(
        case.network, case.scene, case.draws, case.network.horizon_mask_weights.double()
    )
    network = case.network.float()
    sampled = Windows(
        case.windows.observations.float(), case.windows.actions.float(), case.windows.starts
    )
    draws = Draws(case.draws.posterior.float(), case.draws.steps.float(), None, None)
    result = elbo.compute_terms(
        network,
        elbo.encode_windows(network, sampled, TRAINING["burn_in"]),
        draws,
        network.horizon_mask_weights,
    )
    for actual, target in zip(result, expected, strict=True):
        torch.testing.assert_close(actual.double(), target, rtol=1e-5, atol=1e-5)


def test_one_step_without_masks_is_the_exact_bound():
    case = make_case(dynamics="ensemble")
    single = case.draws._replace(steps=case.draws.steps[:0])
    weights = torch.ones(1, TRAINING["window"] - 1, dtype=torch.float64)
    scored = elbo.compute_terms(case.network, case.scene, single, weights)
    exact = elbo.evidence_bound(case.network, case.scene, case.draws)
    torch.testing.assert_close(exact, (scored.ell - scored.kl_first - scored.kl_steps).mean(0))
    torch.testing.assert_close(exact, scored.bound.mean(0))
    several = elbo.compute_terms(
        case.network, case.scene, case.draws, case.network.horizon_mask_weights.double()
    )
    torch.testing.assert_close(exact, several.bound.mean(0))


def test_masks_do_not_change_the_exact_bound():
    case = make_case(masked=True, dynamics="mlp")
    free = case.draws._replace(keep_mask=None, replacement=None)
    exact = elbo.evidence_bound(case.network, case.scene, case.draws)
    assert torch.equal(exact, elbo.evidence_bound(case.network, case.scene, free))


def test_nothing_after_an_episode_s_end_counts_in_the_exact_bound():
    case, lasts = (
        make_case(dynamics="rbf"),
        torch.ones(TRAINING["window"], TRAINING["batch_size"], dtype=torch.float64),
    )
    lasts[4:, 1], lasts[2:, 2] = 0, 0
    result = elbo.evidence_bound(case.network, case.scene, case.draws, lasts)
    for window, times in ((0, 6), (1, 4), (2, 2)):
        scene = EncodedWindows(*(part[:, :times, [window]] for part in case.scene))
        posterior = case.draws.posterior[..., :times, [window]]
        alone = Draws(posterior, case.draws.steps[..., : times - 1, [window]], None, None)
        torch.testing.assert_close(
            result[window], elbo.evidence_bound(case.network, scene, alone)[0]
        )


def kl_steps(case: Case, scene: EncodedWindows | None = None, draws: Draws | None = None) -> Tensor:
    scored = elbo.compute_terms(
        case.network,
        scene or case.scene,
        draws or case.draws,
        case.network.horizon_mask_weights.double(),
    )
    return scored.kl_steps.detach()


def test_masked_targets_contribute_nothing():
    case = make_case(masked=True, dynamics="mlp")
    keep_mask = torch.ones_like(case.draws.keep_mask)
    keep_mask[2, :3] = False
    case = case._replace(draws=case.draws._replace(keep_mask=keep_mask))
    mean, variance = case.scene.mean.clone(), case.scene.variance.clone()
    mean[:, 2, :3] += 7
    variance[:, 2, :3] *= 3
    # The one after a masked one starts from the masked one's sample, not from its belief.
    changed = case.scene._replace(mean=mean, variance=variance)
    assert torch.equal(kl_steps(case, changed), kl_steps(case))
    mean[:, 2, 3] += 7
    assert (kl_steps(case, changed) != kl_steps(case)).tolist() == [
        [False, False, False, True, False]
    ]


def test_horizons_beyond_the_window_contribute_nothing():
    case = make_case(dynamics="mlp")
    steps, times = case.draws.steps.clone(), TRAINING["window"]
    for place in range(
        len(steps)
    ):  # drawn before step place + 2, which counts from t on while t + place + 2 < times
        steps[place, ..., times - 2 - place :, :] += 5
    assert torch.equal(kl_steps(case, draws=case.draws._replace(steps=steps)), kl_steps(case))
    steps[0, ..., 0, :] += 5
    assert not torch.equal(kl_steps(case, draws=case.draws._replace(steps=steps)), kl_steps(case))


def test_the_first_of_a_window_is_never_masked_and_others_are_as_often_as_asked():
    case = make_case(dynamics="mlp")
    scene = EncodedWindows(*(part.repeat(1, 20, 40) for part in case.scene))
    draws = Generator().manual_seed(0)
    keep_mask = elbo.add_mask(elbo.draw(1, 1, 2, scene, draws), 0.3, draws).keep_mask
    assert keep_mask[0].all()
    assert float(keep_mask[1:].double().mean()) == pytest.approx(0.7, abs=0.01)


def test_the_burn_in_is_seen_but_gets_no_gradient():
    case = make_case(dynamics="mlp")
    observations = case.windows.observations.clone().requires_grad_()
    scene = elbo.encode_windows(
        case.network, case.windows._replace(observations=observations), TRAINING["burn_in"]
    )
    (gradient,) = torch.autograd.grad(scene.mean.sum() + scene.variance.sum(), observations)
    assert gradient[: TRAINING["burn_in"]].abs().max() == 0
    assert (gradient[TRAINING["burn_in"] :].abs().amax((1, 2)) > 0).all()
    changed = case.windows.observations.clone()
    changed[0] += 1
    other = elbo.encode_windows(
        case.network, case.windows._replace(observations=changed), TRAINING["burn_in"]
    )
    assert not torch.equal(other.mean, scene.mean)
