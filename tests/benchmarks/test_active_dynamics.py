"""Rows of active_dynamics have all sides and compare the same beliefs and predictions."""

import pytest

from benchmarks import timing
from benchmarks.active_dynamics import measure
from benchmarks.active_dynamics.measure import Carried, network_of
from benchmarks.reference.active_dynamics import RecentRollout
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL
from benchmarks.timing import NotComparable
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from tests.conftest import ROOT, shapes_unchecked


@pytest.fixture(scope="module")
def network() -> SeqVae:
    return network_of(ROOT)


def test_both_rows_have_all_sides(monkeypatch):
    monkeypatch.setattr(measure, "grown", lambda work: float(len(str(work))))
    monkeypatch.setattr(timing, "MOST_CALLS", 1)
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1)
    assert [row.unit for row in rows] == ["ms/step", "KiB"]
    assert all({*row.sides} == {ORIGINAL, PROPOSAL, OURS} for row in rows)


class Silent(Carried):
    """Predicts what it believes already."""

    def step(self, observation, action):
        self.predicted = super().step(observation, action)
        return self.predicted


@pytest.mark.parametrize(
    ("name", "replacement", "time"),
    [("RecentRollout", lambda _: RecentRollout(3), 3), ("Carried", Silent, 1)],
    ids=["beliefs", "predictions"],
)
def test_other_beliefs_and_predictions_are_refused(network, monkeypatch, name, replacement, time):
    measure.check_beliefs(network)
    monkeypatch.setattr(measure, name, replacement)
    with pytest.raises(NotComparable, match=f"agent step {time}: ours differs"):
        measure.check_beliefs(network)
