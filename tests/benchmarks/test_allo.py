"""The plain reference and the project do the same work; the benchmark checks it."""

import jax
import numpy as np
import pytest

from benchmarks.allo import measure, parts, sampling, steps
from benchmarks.harness import Measured, NotComparable, Row
from benchmarks.jax_work import refuse_difference, refuse_other_frequencies
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import sample_with_snippet
from quatrain.models.allo.learning.step import run_chunk
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import sample
from tests.conftest import ROOT, SMALL

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world() -> steps.World:
    return steps.world_of(steps.config_of(ROOT, **SMALL["allo"], env={"max_episode_steps": 20}))


def first_inputs(world, number=0):
    key = jax.random.fold_in(world.state.base_key[0], number)
    batch = sample(key, world.data.episodes, 32, world.config.train.discounts)
    return steps.inputs_of(world, batch)


def test_reference_learns_the_same_as_the_project_from_the_same_batches(world):
    state, logged = reference.start(world.settings, world.state), []
    way = reference.ORIGINAL
    for number in range(5):
        inputs = first_inputs(world, number)
        state, metrics = reference.step(state, inputs, world.settings, way.encode, way.errors)
        logged.append(metrics)
    ours, recorded = run_chunk(world.config, 5, world.state, world.data)
    for name in ("params", "duals", "barrier"):
        first = jax.tree.map(lambda leaf: leaf[0], getattr(ours, name))
        refuse_difference(name, {"ours": first, "plain": getattr(state, name)}, atol=1e-5)
    for name, values in recorded.items():
        plain = [metrics[name] for metrics in logged]
        np.testing.assert_allclose(values[0], plain, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "way", [reference.ORIGINAL, reference.PROPOSED, reference.Way(sample=sample_with_snippet)]
)
def test_reference_loop_learns_and_logs_every_record(world, way):
    arguments = world.buffer, np.asarray(world.data.inputs), world.settings, way, range(200)
    untrained = reference.start(world.settings, world.state)
    losses = [
        each["loss"] for each in reference.learn(np.random.default_rng(3), untrained, *arguments)[1]
    ]
    assert len(losses) == 200 // world.config.train.record_every
    assert min(losses) < losses[0] / 2


def test_the_proposals_parts_of_a_step_change_no_number(world):
    state, inputs = reference.start(world.settings, world.state), first_inputs(world)
    results = [
        reference.step(state, inputs, world.settings, way.encode, way.errors)
        for way in (reference.ORIGINAL, reference.PROPOSED)
    ]
    refuse_difference("step", dict(enumerate(results)), rtol=1e-4, atol=1e-4)
    metrics = results[0][1]
    assert reference.all_together(metrics) == reference.one_by_one(metrics)


def test_parts_are_measured_on_all_sides_and_other_terms_are_refused(world, monkeypatch):
    for name in ("GATHERED", "UPDATED", "LOGGED"):
        monkeypatch.setattr(parts, name, 2)
    monkeypatch.setattr(parts, "DPI", dict.fromkeys(parts.DPI, 20))
    rows = [steps.encoder_row(world, 1), parts.gather_row(world, 1), *parts.term_rows(world, 1)]
    rows += [parts.metrics_row(1), parts.plots_row(world)]
    assert [row.claims for row in rows] == [(f"allo-{claim}",) for claim in (2, 4, 5, 7, 8, 6, 3)]
    assert all(row.before is not None and row.seed_way is not None for row in rows)
    wrong = lambda *sides: 1.5 * parts.terms_here(*sides)  # noqa: E731
    monkeypatch.setitem(reference.TERMS, "product", wrong)
    with pytest.raises(NotComparable, match="terms: product differs from ours"):
        parts.term_rows(world, rounds=1)


def test_another_loss_is_refused(world, monkeypatch):
    right = steps.objective
    wrong = lambda *arguments: (1.01 * right(*arguments)[0], None)  # noqa: E731
    monkeypatch.setattr(steps, "objective", wrong)
    with pytest.raises(NotComparable, match="room4: loss or gradient of one batch: ours differs"):
        steps.gradients(world)


def test_samplers_follow_the_law_and_others_are_refused(world):
    discount = world.config.train.discounts[0]
    law = pair_matrix(world.dataset.train, len(world.data.inputs), (discount,))
    for name, draw in sampling.samplers(world.dataset.train, discount).items():
        if name != "limit":
            sampling.refuse_another_law(name, [draw() for _ in range(20)], law)
    state = np.arange(len(law)).repeat(50)
    with pytest.raises(
        NotComparable, match=r"stayers: 5,200 samples do not follow the sampling law"
    ):
        sampling.refuse_another_law("stayers", [(state, state)], law)
    with pytest.raises(NotComparable, match="impossible: 101 samples"):
        refuse_other_frequencies("impossible", np.array([50, 50, 1]), np.array([50.5, 50.5, 0]))


def test_memory_is_counted_in_bytes_of_100_rows(world):
    row = sampling.memory_row(world.dataset.train)
    assert row.ours.values == pytest.approx([100 * (21 * 1 + 20 * 4)])  # horizons in bytes
    assert row.seed_way.values == pytest.approx([100 * (100 * 4 + 4)])


def test_copied_scalars_are_the_rows_of_the_project_and_others_are_refused(world, monkeypatch):
    assert measure.preparation_row(world, rounds=1).ratios["before/ours"].median > 0
    monkeypatch.setattr(measure, "rows_of", lambda _: world.buffer)
    monkeypatch.setattr(world.buffer, "terminals", 1 - world.buffer.terminals)
    with pytest.raises(NotComparable, match="data preparation: before differs from ours"):
        measure.preparation_row(world, rounds=1)


def test_a_whole_run_is_preparation_and_steps():
    sides = (Measured(np.full(3, seconds)) for seconds in (1, 20, 0.001, 0.005, 0.004))
    preparation = Row("prepare", "s", next(sides), next(sides))
    step = Row("step", "ms/step", next(sides), next(sides), next(sides))
    row = measure.whole_run_row(preparation, step)
    sides = [side.median for side in (row.ours, row.before, row.seed_way)]
    assert sides == pytest.approx([21, 120, 100])
