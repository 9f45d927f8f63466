"""Small batches of both families, as numbers: what moves them has changed what is learned."""

import numpy as np
import pytest
import torch

from quatrain.envs.vector_field.observation import Emission
from quatrain.models.active_dynamics import losses
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import EmissionArrays, collect
from quatrain.models.active_dynamics.seq_vae import elbo
from quatrain.models.active_dynamics.seq_vae.elbo import Draws
from quatrain.models.active_dynamics.seq_vae.trainer import SeqVaeTrainer
from quatrain.models.active_dynamics.seq_vae.trainer_state import init_state
from quatrain.replay.windows import Transition, Windows
from tests.models.active_dynamics.small_trials import begun, configured
from tests.torch_numbers import wave

ROWS, CHANNELS, TRANSITIONS, D = 3, 8, 7, 2


def channels() -> Emission:
    weight, bias = wave(CHANNELS, D, start=1.0), wave(CHANNELS, start=2.0)
    return Emission("linear", "gaussian", weight, bias, torch.full((CHANNELS,), 0.3))


def test_what_a_filter_makes_of_a_few_transitions_are_these_numbers():
    """One row ends an episode after the fourth of them."""
    noise = {"process_noise": 0.01, "noise_sd": 0.3**0.5}
    network = {"bayes_filter": noise, "rbf": {"prior_field_sd": 1.0}}
    config = configured(seeds=ROWS, network=network, train={"arms": ("random",)})
    dataset = collect(config, 0)
    start = dataset.train._replace(observations=wave(ROWS, 11, CHANNELS, start=3.0).numpy())
    emission = EmissionArrays(*(part.numpy() for part in channels()[2:]))
    rows = begun(config, dataset._replace(train=start, emission=emission)).learner
    assert isinstance(rows, BayesFilterLearner)
    lines = []
    for time in range(TRANSITIONS):
        action, y = (wave(ROWS, size, start=4.0 + 3 * time + size) for size in (D, CHANNELS))
        ended = torch.tensor([time == 3, False, False])
        start = torch.where(ended[:, None], y.flip(0), y)
        lines.append(rows.observe(Transition(y, action, ended, start)))
    nll, gained = torch.stack(lines).mean(), rows.information().mean()
    size = rows.weights["weight"].square().mean().sqrt()
    assert [float(nll), float(gained), float(size)] == pytest.approx(
        [1.9026664, 1.4123513, 0.064184055], rel=1e-4
    )


def test_the_terms_of_a_batch_of_windows_are_these_numbers(monkeypatch: pytest.MonkeyPatch):
    """samples 2, horizons 3, times 8 after 2 of burn-in, windows 5."""
    config = configured("seq_vae")
    trainer = SeqVaeTrainer.from_state(config, channels(), init_state(config, channels(), 0))
    with torch.no_grad():
        for place, param in enumerate(trainer.network.parameters()):
            param.copy_(0.4 * wave(*param.shape, start=float(place)))
    drawn = Draws(wave(1, D, 2, 8, 5, start=5.0), wave(2, 1, D, 2, 7, 5, start=6.0), None, None)
    monkeypatch.setattr(elbo, "draw", lambda *_: drawn)
    trainer.updates = 2  # beta 0.4
    sampled = Windows(
        wave(10, 5, CHANNELS, start=7.0),
        wave(10, 5, D, start=8.0),
        torch.zeros(5, dtype=torch.int64),
    )
    _, lines = trainer.objective(sampled, 20)
    result = [float(lines[name]) for name in ("loss", *losses.TERMS["seq_vae"], "elbo_exact")]
    assert result == pytest.approx(
        [23.632786, -2.405907, 0.018738262, 5.134388, 0.26302776, -3.700384], rel=1e-4
    )
    assert np.isclose(float(lines["beta"]), 0.4)
