"""The plain reference does the original's work and the project the same, else it is refused."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from benchmarks.iqn import measure
from benchmarks.iqn import sides as making
from benchmarks.iqn.sides import SAME_TARGET
from benchmarks.reference import iqn as reference
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL, Row
from benchmarks.timing import NotComparable
from quatrain.frameworks.torch import threads
from tests.conftest import ROOT

pytestmark = pytest.mark.full
ENV = {"agents": 2, "max_turns": 10, "height": 5, "width": 6}
NETWORK = {"frames": 3, "hidden": 8, "cosines": 4}
TRAIN = {
    "turns": 100,
    "turns_per_cycle": 10,
    "updates_per_cycle": 1,
    "record_every": 2,
    "evaluate_every": 0,
    "batch_size": 16,
    "capacity": 100,
    "loss": SAME_TARGET | {"quantiles": 5, "target_quantiles": 5},
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Idle threads of PyTorch would spin in the way of the others'."""
    with threads(1):
        yield


@pytest.fixture(scope="module")
def sides() -> making.Sides:
    sections = {"env": ENV, "collect": {"turns": 50}, "network": NETWORK, "train": TRAIN}
    return making.sides_of(making.config_of(ROOT, **sections))


def test_reference_has_the_parameters_and_the_loss_of_the_original():
    config = making.config_of(ROOT, train={"loss": SAME_TARGET})
    network = reference.Agent(config, torch.Generator()).online
    assert sum(each.numel() for each in network.parameters()) == 300_760
    taus, values, target = map(torch.tensor, ([[0.25, 0.75]], [[1.0, 3.0]], [[0.0, 2.0, 4.5]]))
    errors = target[:, None, :] - values[:, :, None]
    loss = reference.quantile_huber(errors, taus).item()
    assert loss == pytest.approx(0.458333, abs=1e-6)


def test_another_loss_is_refused(sides, monkeypatch):
    monkeypatch.setattr(reference, "quantile_huber", lambda errors, *_: (errors**2).mean())
    with pytest.raises(NotComparable, match="loss or gradient of one batch: ours differs"):
        making.check_gradient(sides)


def test_rows_have_all_sides_and_the_agents_of_each_learn(sides):
    network = sides.agents[1].online.hidden.weight
    before = network.detach().clone()
    rows: list[Row] = measure.step_rows(sides, 1)
    assert not torch.equal(before, network)
    assert np.isfinite(network.detach().numpy()).all()
    rows += [measure.acting_row(sides, 1), measure.world_row(sides.config.env, 1)]
    rows += [measure.training_row(sides, sides.config, 1)]
    both = {ORIGINAL, OURS}
    assert [{*row.sides} - {PROPOSAL} for row in rows] == [both] * 5
    assert [row.work for row in rows if PROPOSAL not in row.sides] == ["random play"]
    assert all(min(times.values) > 0 for row in rows for times in row.sides.values())
