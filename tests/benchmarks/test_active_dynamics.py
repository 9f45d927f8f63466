"""Rows of active_dynamics compare the same beliefs; what the proposal changes is as described."""

import pytest
import torch

from benchmarks import timing
from benchmarks.active_dynamics import measure
from benchmarks.active_dynamics.measure import LENGTH, Carried, network_of, transitions_of
from benchmarks.reference.active_dynamics import (
    Agent,
    ProposedAgent,
    ProposedRollout,
    RecentRollout,
)
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL
from benchmarks.timing import NotComparable
from quatrain.models.active_dynamics.seq_vae.network import SeqVae
from tests.conftest import ROOT, shapes_unchecked


@pytest.fixture(scope="module")
def network() -> SeqVae:
    return network_of(ROOT)


def agent_of(network, kind, recent):
    return kind(measure.plain_encoder(network), measure.predictor(network), recent)


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


def test_another_prediction_is_refused(network, monkeypatch):
    step = Carried.step

    def silent(carried, observation, action):
        belief = step(carried, observation, action)
        carried.predicted = belief
        return belief

    monkeypatch.setattr(Carried, "step", silent)
    with pytest.raises(NotComparable, match="agent step 1"):
        measure.check_beliefs(network)


@pytest.mark.parametrize("kind", [RecentRollout, ProposedRollout])
def test_a_window_keeps_the_latest_transitions_and_its_copy_stays(kind):
    recent = kind(3)
    for number in range(5):
        recent.add({"value": torch.full((2,), float(number), requires_grad=True)})
    copied = recent.copy()
    recent.add({"value": torch.full((2,), 9.0)})
    assert copied.data["value"][:, 0].tolist() == [2, 3, 4]
    assert recent.data["value"][:, 0].tolist() == [3, 4, 9]
    assert not copied.data["value"].requires_grad


def test_the_proposed_agent_hears_no_observation_after_the_first(network):
    heard = agent_of(network, Agent, RecentRollout(LENGTH))
    proposed = agent_of(network, ProposedAgent, ProposedRollout(LENGTH))
    deaf = agent_of(network, ProposedAgent, ProposedRollout(LENGTH))
    for number, (observation, action) in enumerate(transitions_of(network)[:4]):
        beliefs = [agent.step(observation, action) for agent in (heard, proposed)]
        silent = deaf.step(torch.zeros_like(observation) if number else observation, action)
        torch.testing.assert_close(beliefs[1], silent)
        assert torch.equal(*beliefs) == (number == 0)


@pytest.mark.full
def test_growth_is_that_of_a_process_and_a_failure_is_raised():
    assert measure.grown(bytearray_of) == pytest.approx(measure.TRANSITIONS * 10**4, rel=0.1)
    with pytest.raises(TypeError):
        measure.grown(len)


def bytearray_of(count: int) -> bytearray:
    return bytearray(b"1" * (count * 10**4))
