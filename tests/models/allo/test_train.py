"""Steps between two yields, and that how a training is run does not change what is learned."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.errors import DataError
from quatrain.models.allo import losses
from quatrain.models.allo import train as training
from quatrain.models.allo.collect import collect
from quatrain.models.allo.evaluate import evaluate
from quatrain.models.allo.train import (
    State,
    draw,
    encoder_is_table,
    from_arrays,
    init_state,
    inputs_for,
    objective,
    tables,
    to_arrays,
    train,
    update,
    update_duals,
)
from quatrain.progress import TrainingDiverged
from tests.conftest import params_with, small

allo = partial(small, "allo")


def last(progress: Any) -> Any:
    *_, end = progress
    return end


def same(first: State, second: State) -> bool:
    left, right = to_arrays(first), to_arrays(second)
    return left.keys() == right.keys() and all(
        np.array_equal(left[name], right[name]) for name in left
    )


def test_encoding_a_table_or_samples_learns_the_same():
    ends = []
    for rows in ("table", "batch"):
        config = allo(
            train={"encoder_rows": rows, "steps": 5, "record_every": 5, "evaluate_every": 5}
        )
        ends.append(to_arrays(last(train(config, collect(config, 3), 1)).state))
    for name in ends[0]:
        np.testing.assert_allclose(ends[0][name], ends[1][name], atol=1e-5, err_msg=name)


def test_encoding_of_a_table_or_of_samples_depends_on_their_sizes():
    config = allo(train={"batch_size": 32}).train
    assert encoder_is_table(config, 96)
    assert not encoder_is_table(config, 97)
    assert encoder_is_table(allo(train={"batch_size": 32, "constraint": "three"}).train, 128)
    assert encoder_is_table(allo(train={"mode": "exact"}).train, 10_000)


def test_duals_and_barrier_are_updated_as_computed_by_hand():
    config = allo(
        network={"d": 2},
        train={"lr_dual": 0.1, "lr_barrier": 0.1, "b_init": 0.5, "b_max": 0.55, "dual_clip": None},
    )
    phi, other = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([[2.0, 1.0], [0.0, 1.0]])
    constraints = losses.two_batches(losses.Features(phi, phi, other[None]))
    state = jax.tree.map(lambda leaf: leaf[0], init_state(config, collect(config, 0), 0))
    state = state._replace(duals=jnp.array([[-2.0, 0.0], [1.0, -1.0]]))
    unclipped = update_duals(config.train.model_copy(update={"b_max": 9.0}), state, constraints)
    np.testing.assert_allclose(unclipped.duals, [[-2, 0], [1.05, -1.05]])
    assert unclipped.barrier == pytest.approx(0.6)
    assert update_duals(config.train, state, constraints).barrier == pytest.approx(0.55)


def test_positive_ema_barrier_moves_by_the_mean_positive_part_of_the_average():
    config = allo(
        network={"d": 2},
        train={"lr_barrier": 1.0, "b_init": 0.5, "b_max": 9.0, "barrier_update": "positive_ema"},
    ).train
    state = jax.tree.map(
        lambda leaf: leaf[0],
        init_state(allo(network={"d": 2}, train={"b_init": 0.5}), collect(allo(), 0), 0),
    )
    error = jnp.array([[2.0, 0.0], [1.0, -1.0]])
    other = jnp.array([[1.0, 0.0], [-3.0, -1.0]])
    constraints = losses.Constraints(error, error, other, jnp.float32(0))
    first = update_duals(config, state, constraints)
    assert first.barrier == pytest.approx(0.5 + (2 + 1) / 4)
    second = update_duals(
        config,
        first._replace(step=jnp.int32(1)),
        losses.Constraints(error, error, 2 * other, jnp.float32(0)),
    )
    np.testing.assert_allclose(
        second.quadratic_average, 1.1 * np.array([[2, 0], [-3, 1]]), rtol=1e-6
    )


def test_duals_stay_lower_triangular_and_a_still_barrier_stays():
    config = allo(train={"dual_init": -2.0, "dual_init_mask": "lower", "lr_barrier": 0.0})
    state = last(train(config, collect(config, 0), 0)).state
    assert np.array_equal(np.triu(state.duals[0], 1), np.zeros((3, 3)))
    assert not np.array_equal(state.duals[0], -2 * np.tril(np.ones((3, 3))))
    assert float(state.barrier[0]) == config.train.b_init


def test_every_encoder_parameter_and_only_those_get_a_gradient():
    config = allo()
    dataset = collect(config, 0)
    state = jax.tree.map(lambda leaf: leaf[0], init_state(config, dataset, 0))
    data = training.make_data(config, init_state(config, dataset, 0), dataset)
    batch = draw(config.train, data, jax.random.key(1), jnp.int32(0))
    gradients = jax.grad(objective, has_aux=True)(state.params, config, state, data, batch)[0]
    assert all(np.abs(np.asarray(leaf)).max() > 0 for leaf in jax.tree.leaves(gradients))

    def by_dual(duals: jax.Array, barrier: jax.Array) -> jax.Array:
        moved = state._replace(duals=duals, barrier=barrier)
        return objective(state.params, config, moved, data, batch)[0]

    for gradient in jax.grad(by_dual, argnums=(0, 1))(state.duals, state.barrier):
        np.testing.assert_array_equal(gradient, 0)


def test_exact_gradient_is_the_mean_of_stochastic_ones():
    config = allo(network={"hidden": 5, "layers": 1})
    dataset = collect(config, 0)
    learners = init_state(config, dataset, 0)
    state = jax.tree.map(lambda leaf: leaf[0], learners)._replace(barrier=jnp.float32(0.0))
    exact = allo(network={"hidden": 5, "layers": 1}, train={"mode": "exact"})

    data_of = {mode: training.make_data(mode, learners, dataset) for mode in (config, exact)}

    def gradient(mode: Any, key: jax.Array) -> jax.Array:
        data = data_of[mode]
        batch = draw(mode.train, data, key, jnp.int32(0))
        gradients, _ = jax.grad(objective, has_aux=True)(state.params, mode, state, data, batch)
        return jax.flatten_util.ravel_pytree(gradients)[0]

    keys = jax.random.split(jax.random.key(5), 4000)
    many = np.asarray(jax.jit(jax.vmap(lambda key: gradient(config, key)))(keys), np.float64)
    error = many.std(0) / np.sqrt(len(many))
    distance = np.abs(many.mean(0) - np.asarray(gradient(exact, keys[0])))
    assert (distance <= 4 * error + 1e-6).mean() > 0.99


def test_records_of_fifty_or_hundred_steps_learn_the_same():
    ends = []
    for every in (50, 100):
        config = allo(train={"steps": 200, "record_every": every, "evaluate_every": 200})
        ends.append(last(train(config, collect(config, 0), 0)).state)
    assert same(*ends)


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("mode", ["stochastic", "exact"])
def test_repeated_updates_equal_a_yield_of_train_but_for_rounding(seeds: int, mode: str):
    config = allo(
        seeds=seeds,
        train={"mode": mode, "steps": 5, "record_every": 5, "evaluate_every": 5},
    )
    dataset = collect(config, 0)
    start = init_state(config, dataset, 3)
    before = to_arrays(start)
    state, losses_of_steps = start, []
    for _ in range(5):
        state, metrics = update(config, dataset, state)
        assert {values.shape for values in metrics.values()} == {(seeds,)}
        losses_of_steps.append(metrics["loss"])
    progress = last(train(config, dataset, 3))
    expected = to_arrays(progress.state)
    for name, array in to_arrays(state).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-6, err_msg=name)
    assert progress.metrics["loss"][0] == pytest.approx(np.mean(losses_of_steps), rel=1e-5)
    for name, array in to_arrays(start).items():
        np.testing.assert_array_equal(array, before[name])


def test_each_of_three_learners_equals_one_trained_alone():
    config = allo(seeds=3, train={"steps": 20})
    dataset = collect(config, 0)
    together = last(train(config, dataset, 4))
    assert together.metrics["loss"].shape == (1,)
    assert together.metrics["loss/seed"].shape == (1, 3)
    assert together.metrics["cosine/seed"].shape == (1, 3, 3)
    alone = allo(train={"steps": 20})
    for i in range(3):
        state = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], init_state(config, dataset, 4))
        single = to_arrays(last(train(alone, dataset, 4, state)).state)
        for name, array in to_arrays(together.state).items():
            np.testing.assert_allclose(array[i : i + 1], single[name], atol=1e-5, err_msg=name)


def test_without_held_out_walks_the_held_out_part_is_empty_and_its_scores_are_absent():
    config = allo(collect={"held_out_fraction": 0.0})
    dataset = collect(config, 0)
    assert len(dataset.held_out.starts) == 0
    scores = evaluate(config, last(train(config, dataset, 0)).state, dataset, 0)
    assert "cosine_mean" in scores
    assert not any(name.startswith("held_out") for name in scores)


def test_learners_differ_and_share_nothing_but_data():
    config = allo(seeds=2, train={"steps": 20})
    arrays = to_arrays(last(train(config, collect(config, 0), 4)).state)
    kernels = [
        array
        for name, array in arrays.items()
        if name.endswith("kernel") and name.startswith("params")
    ]
    assert all(not np.array_equal(kernel[0], kernel[1]) for kernel in kernels)


@pytest.mark.parametrize(
    ("poisoned", "term", "key"),
    [
        ("barrier", "barrier term", "lr_barrier"),
        ("duals", "dual term", "lr_dual"),
        ("params", "graph term", "learning_rate"),
    ],
)
def test_the_first_term_that_is_not_finite_is_named_with_its_step(
    poisoned: str, term: str, key: str
):
    config = allo()
    dataset = collect(config, 0)
    state = last(train(allo(train={"steps": 20}), dataset, 0)).state
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), getattr(state, poisoned))
    with pytest.raises(
        TrainingDiverged,
        match=rf"allo step 21: {term} is not finite \(b=.*\); lower allo.train.{key}",
    ):
        next(train(config, dataset, 0, state._replace(**{poisoned: broken})))


def test_a_dataset_of_another_map_is_refused():
    dataset = collect(allo(env={"layout": "maze9"}), 0)
    with pytest.raises(DataError, match="collected on another map than room4"):
        next(train(allo(), dataset, 0))


def test_a_saved_learner_of_another_shape_is_refused():
    config, other = allo(), allo(network={"d": 2})
    arrays = to_arrays(init_state(config, collect(config, 0), 0))
    with pytest.raises(ValueError, match="not a learner of this config: "):
        from_arrays(other, collect(other, 0), arrays)


def test_growing_errors_warn_once_at_the_end():
    with pytest.warns(UserWarning, match="total_error grew"):
        training._warn_if_errors_grew([1.0] * 18 + [5.0] * 2)


def test_fourier_inputs_depend_on_the_seed_and_are_saved_with_the_learner():
    config = allo(env={"observation": "fourier", "fourier": {"scale": 6.0, "count": 7}})
    dataset = collect(config, 0)
    first, second = (init_state(config, dataset, seed) for seed in (1, 2))
    assert inputs_for(config, first, dataset).shape == (104, 16)
    assert not np.array_equal(first.frequencies, second.frequencies)
    restored = from_arrays(config, dataset, to_arrays(first))
    np.testing.assert_array_equal(tables(config, restored, dataset), tables(config, first, dataset))


def test_exact_mode_solves_the_corridor_of_three_cells():
    config = allo(
        env={
            "layout": "rooms",
            "rooms": {"rows": 1, "cols": 1, "height": 1, "width": 3, "extra_doors": 0, "seed": 0},
        },
        network={"d": 3, "hidden": 32},
        # b/κ = 4: at κ = ½ a barrier of ½ has other fixed points, without components 1 and 2.
        train={
            "mode": "exact",
            "b_init": 2.0,
            "b_max": 2.0,
            "steps": 2000,
            "record_every": 1000,
            "evaluate_every": 2000,
        },
    )
    dataset = collect(config, 0)
    assert len(dataset.grid.coords) == 3
    assert last(train(config, dataset, 0)).metrics["cosine_mean"][-1] >= 0.999


def test_room4_learns_most_of_its_vectors_in_4000_of_its_20000_steps():
    config = params_with({}).allo
    dataset = collect(config, 0)
    for progress in train(config, dataset, 0):
        if progress.step == 4000:
            break
    assert progress.metrics["cosine_mean"][-1] >= 0.95
