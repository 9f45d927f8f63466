"""The plain reference and the project do the same work; what differs is refused."""

import jax
import numpy as np
import pytest

from benchmarks.allo import measure
from benchmarks.reference import allo as reference
from benchmarks.rows import ORIGINAL, OURS, PROPOSAL
from benchmarks.timing import NotComparable, check_same
from quatrain.models.allo.train import run_chunk
from quatrain.replay.episodes.trajectories import sample
from tests.conftest import ROOT, SMALL

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def world() -> measure.World:
    config = measure.config_of(ROOT, **SMALL["allo"], env={"max_episode_steps": 20})
    return measure.world_of(config)


@pytest.mark.parametrize("way", [reference.ORIGINAL, reference.PROPOSED], ids=["plain", "proposed"])
def test_reference_learns_the_same_as_the_project_from_the_same_batches(world, way):
    state, logged = reference.start(world.config, world.state), []
    for number in range(5):
        key = jax.random.fold_in(world.state.base_key[0], number)
        batch = sample(key, world.data.episodes, 32, world.config.train.discounts)
        states = batch.state, batch.later_state, batch.constraint_states[0]
        inputs = tuple(world.data.inputs[each] for each in states)
        state, metrics = reference.step(state, inputs, world.config, way.encode)
        logged.append(metrics)
    ours, recorded = run_chunk(world.config, 5, world.state, world.data)
    for name in ("params", "duals", "barrier"):
        first = jax.tree.map(lambda leaf: leaf[0], getattr(ours, name))
        check_same(name, {"ours": first, "plain": getattr(state, name)}, atol=1e-5)
    for name, values in recorded.items():
        plain = [metrics[name] for metrics in logged]
        np.testing.assert_allclose(values[0], plain, rtol=1e-4, atol=1e-5, err_msg=name)


def test_rows_have_all_sides_and_the_references_loop_learns(world):
    step = measure.step_row(world, 1, {PROPOSAL: reference.PROPOSED})
    rows = [step, *measure.sampling_rows(world, 1)]
    assert [{*row.sides} for row in rows] == [{ORIGINAL, PROPOSAL, OURS}] * 3
    start = reference.start(world.config, world.state)
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(3)
    arguments = world.buffer, table, world.config, reference.ORIGINAL, range(200)
    losses = [each["loss"] for each in reference.learn(rng, start, *arguments)[1]]
    assert min(losses) < losses[0] / 2


def test_another_loss_is_refused(world, monkeypatch):
    right = measure.objective
    wrong = lambda *arguments: (1.01 * right(*arguments)[0], None)  # noqa: E731
    monkeypatch.setattr(measure, "objective", wrong)
    with pytest.raises(NotComparable, match="loss or gradient: the original program differs"):
        measure.step_row(world, 1, {})
