"""Learners work where torch's default device is, and ask it for nothing on the way.

The device `meta` holds no values, so whatever would wait for a GPU raises there, on any machine;
but for what torch itself asks for: whether a matrix could be inverted.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from quatrain.frameworks import torch as torch_settings
from quatrain.models.active_dynamics import train
from quatrain.models.active_dynamics.bayes_filter import learner as bayes_filter
from quatrain.models.active_dynamics.collect import Dataset, collect
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.seq_vae import learner as seq_vae
from quatrain.models.active_dynamics.seq_vae import network as networks
from quatrain.models.active_dynamics.seq_vae import trainer as learners
from quatrain.models.active_dynamics.state import TrainingState
from tests.elsewhere import Elsewhere, MadeOnTheCpu, without_a_gpu
from tests.models.active_dynamics.small_trials import (
    DISAGREEMENT,
    ENSEMBLE,
    advanced,
    begun,
    configured,
)

WARMUP, END = 3, 7
CASES: dict[str, dict[str, Any]] = {
    "filter of counts": {
        "env": {"observation": {"kind": "loglinear", "noise": "poisson"}},
        "train": {"arms": ("active", "random", "step", "prbs")},
    },
    "ensemble": {"family": "seq_vae", "network": ENSEMBLE, "train": {"acquisition": DISAGREEMENT}},
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[ActiveDynamicsConfig, Dataset]:
    sections = CASES[request.param]
    windows = {"horizons": 2, "window": 3, "burn_in": 1, "min_windows": 1}
    brief = sections.get("train", {}) | {"transitions": END, "seq_vae": windows}
    config = configured(seeds=1, collect={"warmup": WARMUP}, **sections | {"train": brief})
    return config, collect(config, 0)


@pytest.fixture
def training(
    case: tuple[ActiveDynamicsConfig, Dataset], monkeypatch: pytest.MonkeyPatch
) -> Iterator[TrainingState]:
    """Yields a training on the device without values; constants that are computed once, by
    asking for values, are computed elsewhere.
    """
    config, dataset = case
    monkeypatch.setattr(torch_settings, "Generator", Elsewhere)
    monkeypatch.setattr(learners.nn.utils, "clip_grad_norm_", clipped)
    for module in (bayes_filter, networks):
        monkeypatch.setattr(module, "prior_weight_variance", lambda *_: 0.2)
    with torch.device("meta"):
        with monkeypatch.context() as made_once:
            for module in (bayes_filter, seq_vae, networks):
                made_once.setattr(module, "region_grid", lambda _, d: torch.zeros(11, d))
            built = begun(config, dataset)
        yield built


def clipped(params: Any, limit: float, foreach: bool) -> Tensor:
    """Clips tensor by tensor: `meta` cannot clip many at once."""
    assert foreach
    return clip_grad_norm(params, limit)


clip_grad_norm = torch.nn.utils.clip_grad_norm_


def test_transitions_make_nothing_on_the_cpu_and_wait_for_no_value(
    training: TrainingState, monkeypatch: pytest.MonkeyPatch
):
    """Except for the counter of the replay; and how many windows there are before an update."""
    monkeypatch.setattr(learners.SeqVaeTrainer, "has_enough_windows", lambda *_: True)
    advanced(training, WARMUP)  # whose transitions come from the dataset
    with MadeOnTheCpu() as observed:
        advanced(training, END - WARMUP)
    assert set(observed.operations) <= {"aten.add_.Tensor"}
    assert training.transitions == END


@without_a_gpu
def test_a_gpu_learns_what_a_cpu_does(case: tuple[ActiveDynamicsConfig, Dataset]):
    """From the same warm-up, in which nothing is drawn; afterwards each device draws its own
    numbers.
    """
    config, dataset = case
    result = []
    for device in ("cpu", "cuda"):
        with torch.device(device):
            training = begun(config, dataset)
            lines = [train.advance(training)["innovation_nll"] for _ in range(WARMUP)]
            result.append(torch.stack(lines).cpu())
            advanced(training, END - WARMUP)
            assert training.path.isfinite().all()
    if config.network.family == "bayes_filter":  # weights of networks are drawn
        torch.testing.assert_close(result[1], result[0], atol=1e-4, rtol=1e-4)
