"""The plain reference and the project do the same work; the benchmark checks it."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.allo import measure as bench
from benchmarks.allo import parts, pictures, sampling, steps, worlds
from benchmarks.harness import Measured
from benchmarks.reference import allo as reference
from benchmarks.reference import allo_plots, allo_terms
from benchmarks.reference.replay_loop import sample_searching, sample_with_snippet
from benchmarks.table import NotTheSame, Row
from quatrain.models.allo.train import run_chunk
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import sample
from tests.conftest import ROOT

STEPS = 5


@pytest.fixture(scope="module")
def world() -> worlds.World:
    config = bench.config_of(
        ROOT,
        collect={"num_envs": 13, "steps_per_env": 60, "held_out_fraction": 0.1},
        env={"max_episode_steps": 20},
        network={"d": 3, "hidden": 16, "layers": 2},
        train={
            "batch_size": 32,
            "steps": 10,
            "record_every": STEPS,
            "evaluate_every": STEPS,
            "learning_rate": 0.01,
        },
    )
    return worlds.world_of(config, 7)


def test_reference_learns_the_same_as_the_project_from_the_same_batches(world):
    config, state = world.config, reference.start(world.config, world.state)
    step = jax.jit(partial(reference.step, config=config, encode=reference.three_calls(config)))
    logged = []
    for number in range(STEPS):
        key = jax.random.fold_in(world.state.base_key[0], number)
        batch = sample(key, world.data.episodes, 32, config.train.discounts)
        state, metrics = step(state, worlds.batches(batch, world.data.inputs))
        logged.append(metrics)
    ours, recorded = run_chunk(config, STEPS, world.state, world.data)
    for name in ("params", "duals", "barrier"):
        project_leaves = jax.tree.leaves(getattr(ours, name))
        plain_leaves = jax.tree.leaves(getattr(state, name))
        for project, plain in zip(project_leaves, plain_leaves, strict=True):
            np.testing.assert_allclose(project[0], plain, atol=1e-5, err_msg=name)
    for name, values in recorded.items():
        plain = [metrics[name] for metrics in logged]
        np.testing.assert_allclose(values[:, 0], plain, rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_way_to_encode_gives_the_same_features(world):
    table, params = world.data.inputs, reference.start(world.config, world.state).params
    states = tuple(np.random.default_rng(3).integers(len(table), size=(3, 11)))
    inputs = tuple(table[selected] for selected in states)
    expected = reference.three_calls(world.config)(params, inputs)
    np.testing.assert_allclose(
        reference.one_call(world.config)(params, inputs), expected, atol=1e-6
    )


def ways(world) -> dict[str, reference.Way]:
    return {
        "original": reference.Way(world.programs.original, sample_searching),
        "proposed": steps.proposed(world),
        "snippet": reference.Way(world.programs.one_call, sample_with_snippet),
    }


@pytest.mark.parametrize("name", ["original", "proposed", "snippet"])
def test_reference_loop_learns_and_logs_every_record(world, name):
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(1)
    untrained = reference.start(world.config, world.state)
    state, logged = reference.learn(
        rng, untrained, world.buffer, table, world.config, ways(world)[name], range(200)
    )
    assert len(logged) == 200 // STEPS
    truth = worlds.truth_of(world)
    assert (
        worlds.fit(world, truth, state.params).loss
        < worlds.fit(world, truth, untrained.params).loss / 2
    )


def test_a_proposed_step_is_the_original_step(world):
    state = reference.start(world.config, world.state)
    inputs = worlds.first_inputs(world)
    expected, metrics = world.programs.original(state, inputs)
    result, other_metrics = world.programs.proposed(state, inputs)
    for item, other in zip(
        jax.tree.leaves(result.params), jax.tree.leaves(expected.params), strict=True
    ):
        np.testing.assert_allclose(item, other, atol=1e-4)
    assert reference.all_together(metrics) == reference.one_by_one(metrics)
    assert other_metrics.keys() == metrics.keys()


def test_one_gather_gives_the_three_batches(world):
    states = tuple(np.random.default_rng(3).integers(len(world.data.inputs), size=(3, 11)))
    for table in (world.data.inputs, np.asarray(world.data.inputs)):
        result = reference.one_gather(table, states)
        np.testing.assert_array_equal(
            np.stack(result), np.stack(reference.three_gathers(table, states))
        )


def test_every_spelling_of_the_terms_has_the_projects_gradient():
    rng = np.random.default_rng(5)
    phi, phi_2 = (jnp.asarray(rng.normal(size=(13, 3)), jnp.float32) for _ in range(2))
    duals, barrier = -jnp.tril(jnp.ones((3, 3))), jnp.float32(0.5)
    expected = jax.grad(parts.terms_here)(phi, phi_2, duals, barrier)
    for name, terms in allo_terms.TERMS.items():
        result = jax.grad(terms)(phi, phi_2, duals, barrier)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_helper_lets_rows_through_until_an_entry_reaches_the_threshold():
    matrix = jnp.array([[0.1, 0.0, 0.0], [0.0, -0.6, 0.0], [0.1, 0.1, 0.1]])
    assert allo_terms.all_earlier_below(matrix, jnp.float32(0.5)).ravel().tolist() == [1, 1, 0]
    assert allo_terms.all_earlier_below(matrix, jnp.float32(0.7)).ravel().tolist() == [1, 1, 1]


def test_terms_that_differ_are_refused(world, monkeypatch):
    monkeypatch.setattr(parts, "UPDATED", 2)
    monkeypatch.setitem(allo_terms.TERMS, "product", lambda *sides: 1.5 * parts.terms_here(*sides))
    with pytest.raises(NotTheSame, match="terms: product moves features elsewhere"):
        parts.term_rows(world, rounds=1)


def test_parts_are_measured_on_both_sides(world, monkeypatch):
    for name in ("GRADIENTS", "GATHERED", "INDEXED", "UPDATED", "LOGGED"):
        monkeypatch.setattr(parts, name, 2)
    rows = parts.part_rows(world, rounds=2)
    claims = {claim for row in rows for claim in row.claims}
    assert claims == {"allo-2", "allo-4", "allo-5", "allo-6", "allo-7", "allo-8"}
    assert all(row.before is not None and row.seed_way is not None for row in rows)


def test_another_loss_is_refused(world, monkeypatch):
    worlds.refuse_another_gradient(world)
    true_loss = reference.loss

    def wrong(*arguments, **named):
        value, parts = true_loss(*arguments, **named)
        return 1.01 * value, parts

    monkeypatch.setattr(reference, "loss", wrong)
    changed = world._replace(programs=worlds.programs_of(world.config))
    with pytest.raises(
        NotTheSame, match="room4: loss or gradient of project and reference differ on one batch"
    ):
        worlds.refuse_another_gradient(changed)


def test_an_arm_that_does_not_learn_is_refused(world):
    before, here = reference.start(world.config, world.state), world.state
    arms = {
        "before": steps.Arm(lambda state: steps.Turn(state, 29.0), before, turn=1),
        "ours": steps.Arm(
            lambda state: steps.Turn(state, 29.0 - 20 * len(arms["ours"].losses)), here, turn=1
        ),
    }
    for arm in (*arms.values(), *arms.values()):
        arm()
    with pytest.raises(NotTheSame, match="room4: before began with loss 29 and came to 29"):
        steps.learned(world, arms)
    del arms["before"].losses[:]
    arms["before"].losses += [29.0, 14.0, 40.0]
    assert "before 0" in steps.learned(world, arms)


def test_the_limit_has_the_products_of_the_encoded_rows(world):
    assert steps.rows_encoded(world.config, 32 * 3) == (96, 0)
    assert steps.rows_encoded(world.config, 32 * 3 + 1) == (64, 32)
    arm = steps.matmuls(world)
    arm()
    rows, still, gradients = arm.state
    assert [rows.shape, still.shape] == [(64, 16), (32, 16)]
    assert [gradient.shape for gradient in gradients] == [(16, 3), (16, 16)]
    assert all(np.abs(gradient).max() > 0 for gradient in gradients)


def test_plots_are_made_by_both_sides(world, monkeypatch):
    monkeypatch.setattr(allo_plots, "DPI", 20)
    monkeypatch.setattr(allo_plots, "PROPOSED_DPI", 20)
    row = pictures.plots_row(world)
    assert row.claims == ("allo-3",)
    assert row.before is not None
    assert row.before.values.shape == row.ours.values.shape == (pictures.FEW,)


def test_copying_scalars_gives_the_rows_of_the_project(world):
    columns = bench.columns_of(world.dataset.train, walks=5)
    copied = bench.filled(*columns)
    np.testing.assert_array_equal(copied.obs, world.buffer.obs[:5])
    np.testing.assert_array_equal(copied.terminals, world.buffer.terminals[:5])


def test_samplers_follow_the_law_and_another_one_is_refused(world, monkeypatch):
    monkeypatch.setattr(sampling, "FAST", 20)
    law = pair_matrix(world.dataset.train, len(world.data.inputs), world.config.train.discounts)
    contestants = sampling.samplers(world.dataset.train, world.config.train.discounts[0])
    for name, contestant in contestants.items():
        if name != "limit":
            sampling.refuse_another_law(name, contestant.run(), law)
    state = jnp.arange(len(law)).repeat(50)
    with pytest.raises(NotTheSame, match=r"stayers: 5,200 pairs do not follow the sampling law"):
        sampling.refuse_another_law("stayers", (state, state), law)


def test_pairs_that_cannot_be_are_refused():
    law = np.array([[0.5, 0.5], [0.0, 0.0]])
    with pytest.raises(NotTheSame, match="impossible: 101 pairs"):
        sampling.refuse_another_law(
            "impossible", (np.repeat([0, 1], [100, 1]), np.arange(101) % 2), law
        )


def test_the_first_walks_are_a_buffer_of_their_own(world):
    some = sampling.first_walks(world.dataset.train, 4)
    rows = worlds.rows_of(some)
    np.testing.assert_array_equal(rows.obs, world.buffer.obs[:4])
    assert len(some.starts) == 4 * 20
    assert (some.horizon[some.starts] > 0).all()


def test_memory_is_counted_in_bytes(world, monkeypatch):
    monkeypatch.setattr(sampling, "MEMORY_ROWS", 5)
    row = sampling.memory_row(world.dataset.train, rounds=3)
    np.testing.assert_array_equal(row.ours.values, np.full(3, 5 * 21 * 4 + 5 * 20 * 4))
    assert row.seed_way is not None
    np.testing.assert_array_equal(row.seed_way.values, np.full(3, 5 * 100 * 4 + 5 * 4))


def test_a_whole_run_is_preparation_and_steps():
    def measured(seconds: float) -> Measured:
        return Measured(np.full(3, seconds))

    preparation = Row("prepare", "s", measured(1), before=measured(20))
    step = Row("step", "ms/step", measured(0.001), before=measured(0.005), seed_way=measured(0.004))
    row = bench.whole_run_row(preparation, step)
    assert [row.ours.median, row.before.median, row.seed_way.median] == pytest.approx(
        [21, 120, 100]
    )
    sampled = sampling.whole_row(step)
    assert [sampled.ours.median, sampled.before.median] == pytest.approx([40, 200])
