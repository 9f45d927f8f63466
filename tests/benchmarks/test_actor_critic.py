"""Rows of actor_critic compare sides that compute the same, and others are refused."""

from functools import partial

import pytest
import torch

from benchmarks import timing
from benchmarks.actor_critic import measure
from benchmarks.reference import actor_critic as reference
from benchmarks.reference.actor_critic import AS_IT_WAS, PROPOSED
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL
from benchmarks.timing import NotComparable
from quatrain.replay.rollouts import advantages
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


def test_both_ways_estimate_the_advantages_of_the_project():
    rewards, values = torch.randn(9), torch.randn(10)
    never = torch.zeros(9, 1, dtype=torch.bool)
    columns = (rewards[:, None], values[:-1, None], values[1:, None], never, never)
    ours = [part[:, 0] for part in advantages(*columns, 0.9, 0.8)]
    for way in (AS_IT_WAS, PROPOSED):
        torch.testing.assert_close(list(way.advantages(rewards, values, 0.9, 0.8)), ours)


@pytest.mark.usefixtures("few")
def test_plain_training_learns_and_an_even_colony_keeps_its_size():
    work = measure.plain_training(ROOT, AS_IT_WAS)
    first, second = work(), work()
    assert len(first) == 2
    assert first != second
    actor = measure.actor_of(ROOT)
    colony, positions = measure.plain_colony(actor.world, measure.colonies_of(actor.world, 1), 0)
    generator = torch.Generator().manual_seed(0)
    sizes = [reference.act(actor, colony, generator).after.size for _ in range(3)]
    assert sizes == [len(positions)] * 3 == [6, 6, 6]
