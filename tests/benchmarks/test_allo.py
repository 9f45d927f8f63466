"""The plain reference and the project do the same work, and the benchmark refuses where they do not."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.allo import measure as bench
from benchmarks.allo import steps
from benchmarks.reference import allo as reference
from benchmarks.reference.replay_loop import sample_searching, sample_with_terminal_table
from benchmarks.table import NotTheSame
from quatrain.models.allo.train import run_chunk
from quatrain.replay.episodes.pairs import pair_matrix
from quatrain.replay.episodes.trajectories import sample
from tests.conftest import ROOT

STEPS = 5


@pytest.fixture(scope="module")
def world() -> steps.World:
    config = bench.config_of(
        ROOT,
        collect={"num_envs": 13, "steps_per_env": 60, "held_out_fraction": 0.1},
        env={"max_episode_steps": 20},
        network={"d": 3, "hidden": 16, "layers": 2},
        train={"batch_size": 32, "steps": 10, "record_every": STEPS, "evaluate_every": STEPS, "learning_rate": 0.01},
    )
    return steps.world_of(config, 7)


def test_reference_learns_the_same_as_the_project_from_the_same_batches(world):
    config, state = world.config, reference.start(world.config, world.learner)
    step = jax.jit(partial(reference.step, config=config, encode=reference.three_calls(config)))
    logged = []
    for number in range(STEPS):
        key = jax.random.fold_in(world.learner.base_key[0], number)
        batch = sample(key, world.data.episodes, 32, config.train.discounts)
        state, metrics = step(state, steps.batches(batch, world.data.inputs))
        logged.append(metrics)
    learner, recorded = run_chunk(config, world.learner, world.data)
    for name in ("params", "duals", "barrier"):
        pairs = zip(*map(jax.tree.leaves, (getattr(learner, name), getattr(state, name))), strict=True)
        for project, plain in pairs:
            np.testing.assert_allclose(project[0], plain, atol=1e-5, err_msg=name)
    for name, values in recorded.items():
        plain = [metrics[name] for metrics in logged]
        np.testing.assert_allclose(values[:, 0], plain, rtol=1e-4, atol=1e-5, err_msg=name)


def test_every_way_to_encode_gives_the_same_features(world):
    table, params = world.data.inputs, reference.start(world.config, world.learner).params
    states = tuple(np.random.default_rng(3).integers(len(table), size=(3, 11)))
    inputs = tuple(table[chosen] for chosen in states)
    expected = reference.three_calls(world.config)(params, inputs)
    np.testing.assert_allclose(reference.one_call(world.config)(params, inputs), expected, atol=1e-6)
    one_hot = reference.one_hot_of_table(world.config, table)(params, states)
    np.testing.assert_allclose(one_hot, expected, atol=1e-6)


@pytest.mark.parametrize("sample_rows", [sample_searching, sample_with_terminal_table])
def test_reference_loop_learns_and_logs_every_record(world, sample_rows):
    step = jax.jit(partial(reference.step, config=world.config, encode=reference.one_call(world.config)))
    table, rng = np.asarray(world.data.inputs), np.random.default_rng(1)
    state = reference.start(world.config, world.learner)
    state, logged = reference.learn(rng, state, world.buffer, table, world.config, sample_rows, step, range(200))
    assert len(logged) == 200 // STEPS
    untrained = reference.start(world.config, world.learner).params
    assert steps.fit(world, state.params).loss < steps.fit(world, untrained).loss / 2


def test_another_loss_is_refused(world, monkeypatch):
    steps.refuse_another_gradient(world)
    true_loss = reference.loss

    def wrong(*arguments, **named):
        value, parts = true_loss(*arguments, **named)
        return 1.01 * value, parts

    monkeypatch.setattr(reference, "loss", wrong)
    with pytest.raises(NotTheSame, match="room4: loss or gradient of project and reference differ on one batch"):
        steps.refuse_another_gradient(world)


def test_an_arm_that_does_not_learn_is_refused(world):
    stuck = steps.Arm(lambda state: state, reference.start(world.config, world.learner))
    arms = {"before": stuck, "seed": stuck, "ours": steps.Arm(lambda learner: learner, world.learner)}
    with pytest.raises(NotTheSame, match="room4: before has loss"):
        steps.learned(world, arms)


def test_copying_scalars_gives_the_rows_of_the_project(world):
    columns = bench.columns_of(world.dataset.train, walks=5)
    copied = bench.filled(*columns)
    np.testing.assert_array_equal(copied.obs, world.buffer.obs[:5])
    np.testing.assert_array_equal(copied.terminals, world.buffer.terminals[:5])


def test_samplers_follow_the_law_and_another_one_is_refused(world):
    law = pair_matrix(world.dataset.train, len(world.data.inputs), world.config.train.discounts)
    for name, contestant in bench.samplers(world.dataset.train, world.config.train.discounts[0]).items():
        bench.refuse_another_law(name, contestant.run(), law)
    state = jnp.arange(len(law)).repeat(50)
    with pytest.raises(NotTheSame, match=r"stayers: 5,200 pairs do not follow the sampling law"):
        bench.refuse_another_law("stayers", (state, state), law)
