"""Rows of active_dynamics compare the same beliefs; what the proposal changes is as described."""

import pytest

from benchmarks import timing
from benchmarks.active_dynamics import measure
from benchmarks.active_dynamics.measure import network_of
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


def test_other_beliefs_are_refused(network, monkeypatch):
    measure.check_beliefs(network)
    monkeypatch.setattr(measure, "RecentRollout", lambda _: RecentRollout(3))
    with pytest.raises(NotComparable, match="agent step 3: ours differs"):
        measure.check_beliefs(network)
