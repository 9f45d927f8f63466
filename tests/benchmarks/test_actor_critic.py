"""Rows of actor_critic compare sides that compute the same, and others are refused."""

from functools import partial

import pytest

from benchmarks import timing
from benchmarks.actor_critic import measure
from benchmarks.reference import actor_critic as reference
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL
from benchmarks.timing import NotComparable
from tests.conftest import ROOT, shapes_unchecked

LOSS = reference.loss


@pytest.fixture
def few(monkeypatch):
    changes = measure.CHANGES["train"] | {"num_envs": 3, "horizon": 2, "minibatch_size": 4}
    monkeypatch.setattr(measure, "CHANGES", measure.CHANGES | {"train": changes})
    for name, value in {"COLONIES": 3, "HORIZON": 2, "CELLS": 6, "SAMPLES": 2}.items():
        monkeypatch.setattr(measure, name, value)
    monkeypatch.setattr(timing, "MOST_CALLS", 1)


@pytest.mark.usefixtures("few")
def test_every_row_has_the_original_and_ours_and_keeps_to_what_was_proposed():
    with shapes_unchecked():
        rows = measure.measure(ROOT, 1)
    assert [len(row.sides) for row in rows] == [3, 2, 3]
    assert all({ORIGINAL, OURS} <= {*row.sides} <= {ORIGINAL, PROPOSAL, OURS} for row in rows)
    assert all(row.claim.document == "colony" for row in rows)


def skewed_loss(actor, *batch):
    weight = actor.eager.cells.weight.sum()
    return LOSS(actor, *batch) + 0.01 * (weight - weight.detach())


@pytest.mark.parametrize(
    ("what", "module", "name", "replacement"),
    [
        ("loss and gradient", reference, "CLIP", 0.1),
        ("loss and gradient", reference, "loss", lambda *args: 1.01 * LOSS(*args)),
        ("loss and gradient", reference, "loss", skewed_loss),
        ("entropy", measure, "beta_entropy", lambda params: params[0].sum(-1)),
    ],
    ids=["clipped", "loss", "gradient", "entropy"],
)
@pytest.mark.usefixtures("few")
def test_sides_that_differ_are_refused(monkeypatch, what, module, name, replacement):
    work = partial(measure.entropy_row, 1)
    if what == "loss and gradient":
        work = partial(measure.check_learning, ROOT)
    work()
    monkeypatch.setattr(module, name, replacement)
    with pytest.raises(NotComparable, match=f"{what}.* differs from"):
        work()
