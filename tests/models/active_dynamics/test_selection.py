"""Settings are chosen by what observations say, and the noise of the world is found again."""

import numpy as np
import pytest
import torch

from quatrain.models.active_dynamics import selection
from quatrain.models.active_dynamics.collect import collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.selection import changed, choose
from quatrain.models.active_dynamics.train import train
from tests.conftest import shapes_unchecked
from tests.models.active_dynamics.small_trials import configured

NOISES = ("bayes_filter", ({"noise_sd": 0.05}, {"noise_sd": 0.1}, {"noise_sd": 0.2}))
SIDES = ("rbf", ({"side": 3, "length": 1.5}, {"side": 7, "length": 0.7}))


def world(noise_sd: float, assumed: float) -> ActiveDynamicsConfig:
    return configured(
        env={"observation": {"noise_sd": noise_sd}},
        network={"bayes_filter": {"noise_sd": assumed}},
    )


@pytest.mark.parametrize("noise_sd", [0.05, 0.2])
def test_the_noise_of_the_world_is_found(noise_sd: float, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(selection, "CANDIDATES", (NOISES,))
    config = world(noise_sd, 0.1)
    with shapes_unchecked():
        scored = choose(config, collect(config, 0), 0, 60)
    assert [settings.changes for settings in scored[:-1]] == [
        {},
        {"bayes_filter": {"noise_sd": 0.05}},
        {"bayes_filter": {"noise_sd": 0.2}},
    ]
    assert scored[-1].changes == {"bayes_filter": {"noise_sd": noise_sd}}
    assert scored[-1].nats == min(settings.nats for settings in scored)


def test_candidates_are_compared_on_the_transitions_of_the_pilot_run():
    config = selection._brief(configured(), 60)
    dataset = collect(config, 0)
    with shapes_unchecked():
        *_, last = train(config, dataset, 0)
        actions = selection.pilot_actions(config, dataset, 0)
        nats = selection.evidence(config, dataset, 0, actions)
    assert torch.equal(actions, last.state.replay.actions[:, :60])
    recorded = [progress.metrics["innovation_nll"] for progress in train(config, dataset, 0)]
    assert nats == pytest.approx(8 * float(np.mean(recorded)), rel=1e-6)


def test_what_was_chosen_first_is_kept_while_the_next_is(monkeypatch: pytest.MonkeyPatch):
    """Nats are given: the finer grid is better, and more noise with it."""
    monkeypatch.setattr(selection, "CANDIDATES", (SIDES, NOISES))

    def evidence(config: ActiveDynamicsConfig, *_: object) -> float:
        network = config.network
        return -network.rbf.side - network.bayes_filter.noise_sd

    monkeypatch.setattr(selection, "evidence", evidence)
    config = configured()
    best = choose(config, collect(config, 0), 0, 60)[-1]
    expected = {"rbf": {"side": 7, "length": 0.7}, "bayes_filter": {"noise_sd": 0.2}}
    assert best.changes == expected
    network = changed(config, best.changes).network
    assert (network.rbf.side, network.rbf.length) == (7, 0.7)
    assert network.bayes_filter.noise_sd == 0.2
    assert network.bayes_filter.process_noise == config.network.bayes_filter.process_noise


def test_settings_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match=r"length 0\.1 is below"):
        changed(configured(), {"rbf": {"length": 0.1}})
