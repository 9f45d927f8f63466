"""How a training is run does not change what is learned, and what it is stopped by."""

import warnings
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from quatrain.errors import DataError
from quatrain.models.allo import losses
from quatrain.models.allo.collect import Dataset, collect
from quatrain.models.allo.config import AlloConfig, Train
from quatrain.models.allo.evaluate import corrected_eigenvalues, evaluate
from quatrain.models.allo.memory import needs
from quatrain.models.allo.train import (
    State,
    draw,
    dual_eigenvalues,
    from_arrays,
    init_state,
    inputs_for,
    make_data,
    objective,
    run_chunk,
    tables,
    to_arrays,
    train,
    update_duals,
    warn_if_errors_grew,
)
from quatrain.models.allo.truth import true_spectrum
from quatrain.progress import Progress, TrainingDiverged
from tests.conftest import params_with, shapes_unchecked, small

allo = partial(small, "allo")
CONFIG = allo()


@cache
def dataset() -> Dataset:
    return collect(CONFIG, 11)


def last(config: AlloConfig, seed: int = 5, state: State | None = None) -> Progress:
    with shapes_unchecked():
        *_, end = train(config, dataset(), seed, state)
    return end


def alike(item: State, other: State, **tolerance: float) -> None:
    expected = to_arrays(other)
    for name, array in to_arrays(item).items():
        np.testing.assert_allclose(array, expected[name], err_msg=name, **tolerance)


def of_learner(state: State, i: int) -> State:
    return jax.tree.map(lambda leaf: leaf[i : i + 1], state._replace(snapshots=None))


def only(state: State) -> State:
    return jax.tree.map(lambda leaf: leaf[0], state._replace(snapshots=None))


@pytest.mark.full
def test_encoding_of_a_table_or_of_samples_learns_the_same(monkeypatch: pytest.MonkeyPatch):
    brief = allo(train={"steps": 5, "record_every": 5, "evaluate_every": 5})
    ends = []
    for is_table in (True, False):
        monkeypatch.setattr(Train, "encodes_table", lambda *_, value=is_table: value)
        run_chunk.clear_cache()
        ends.append(last(brief).state)
    alike(*ends, atol=1e-5)
    run_chunk.clear_cache()


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ({}, 96),
        ({"batch_size": 64}, 104),
        ({"constraint": "three"}, 104),
        ({"constraint": "visits"}, 104),
    ],
)
def test_the_estimated_memory_is_of_the_table_or_of_all_samples(changes: dict, rows: int):
    """room4 has 104 states; a step draws three batches of 32."""
    layers = 2 * 16 * 4
    assert needs(allo(train=changes)).train["hidden units of a step"] == rows * layers


APART = "....X....\n....X....\n....X....\n"
PLUS = "XX.XX\nXX.XX\n.....\nXX.XX\nXX.XX\n"


@pytest.mark.parametrize(
    ("text", "d", "said"),
    [
        (APART, 3, r"no walk connects 2 parts of map\.txt, .*components: largest, .*num_envs$"),
        (PLUS, 2, r"3 eigenvectors of map\.txt .* only 2 are learned.*network\.d: 4 or more"),
        (PLUS, 4, None),
    ],
)
def test_a_map_whose_truth_leaves_open_what_to_learn_is_refused(text: str, d: int, said: str):
    layout = {"name": "map.txt", "text": text}
    env = {"layout": layout, "layout_components": "all", "start": "uniform"}
    config = allo(
        env=env,
        network={"d": d},
        collect={"num_envs": 64, "steps_per_env": 400},
        evaluate={"degeneracy_tol": 0.2},
    )
    walks = collect(config, 11)
    if said is None:
        assert true_spectrum(config, walks).spectrum.group[d - 1] == 1
        return
    with pytest.raises(DataError, match=said):
        next(train(config, walks, 5))
    with pytest.raises(DataError, match=said):
        evaluate(config, init_state(config, walks, 5), walks, 0)


def test_dual_and_barrier_hold_the_eigenvalue_together_where_the_gradient_is_0():
    """Of true vectors of length s, the gradient is s R v (4 κ λ + β + 2 b (s² − 1))."""
    barrier, coefficient = 0.8, CONFIG.train.graph_coef
    operator, spectrum, _ = true_spectrum(CONFIG, dataset())
    lengths = np.sqrt(np.linspace(1.0, 0.6, CONFIG.network.d))
    table = spectrum.eigenvectors[:, : CONFIG.network.d] * lengths
    eigenvalues = spectrum.eigenvalues[: CONFIG.network.d]
    duals = np.diag(-4 * coefficient * eigenvalues - 2 * barrier * (lengths**2 - 1))

    def total(learned: jax.Array) -> jax.Array:
        graph = 2 * (learned * (jnp.asarray(operator.laplacian) @ learned)).sum()
        constraints = losses.visited_constraints(learned, jnp.asarray(operator.starts))
        multipliers = jnp.asarray(duals), jnp.asarray(barrier)
        return sum(losses.lagrangian(graph, constraints, *multipliers, coefficient).values())

    np.testing.assert_allclose(jax.grad(total)(jnp.asarray(table)), 0, atol=1e-6)
    state = init_state(CONFIG, dataset(), 0)
    state = state._replace(
        duals=jnp.asarray(duals[None]), barrier=jnp.full_like(state.barrier, barrier)
    )
    learned = np.zeros((1, len(spectrum.visited), CONFIG.network.d))
    learned[:, spectrum.visited] = table
    corrected = corrected_eigenvalues(CONFIG, state, learned, spectrum)
    np.testing.assert_allclose(corrected[0], eigenvalues, atol=1e-6)
    assert np.abs(dual_eigenvalues(CONFIG, state)[0] - eigenvalues).max() > 0.05


def test_duals_and_barrier_are_updated_as_computed_by_hand():
    config = allo(
        train={"lr_dual": 0.1, "lr_barrier": 0.1, "b_init": 0.5, "b_max": 0.55, "dual_clip": None}
    ).train
    phi, other = jnp.array([[1.0, 0.0], [1.0, 1.0]]), jnp.array([[2.0, 1.0], [0.0, 1.0]])
    constraints = losses.two_batches(losses.Features(phi, phi, other[None]))
    duals = jnp.array([[-2.0, 3.0], [1.0, -1.0]])  # what lies above the diagonal is dropped
    state = only(init_state(CONFIG, dataset(), 0))._replace(duals=duals, barrier=jnp.float32(0.5))
    free = update_duals(config.model_copy(update={"b_max": 9.0}), state, constraints)
    np.testing.assert_allclose(free.duals, [[-2, 0], [1.05, -1.05]])
    assert free.barrier == pytest.approx(0.6)
    tight = config.model_copy(update={"dual_clip": 1.01})
    np.testing.assert_allclose(
        update_duals(tight, state, constraints).duals, [[-1.01, 0], [1.01, -1.01]]
    )
    assert update_duals(config, state, constraints).barrier == pytest.approx(0.55)


def test_positive_ema_barrier_moves_by_the_mean_positive_part_of_the_average():
    changes = {"lr_barrier": 1.0, "b_init": 0.5, "b_max": 9.0, "barrier_update": "positive_ema"}
    config = allo(train=changes).train
    error = jnp.array([[2.0, 0.0], [1.0, -1.0]])
    other = jnp.array([[1.0, 0.0], [-3.0, -1.0]])
    zeros = {"duals": jnp.zeros((2, 2)), "quadratic_average": jnp.zeros((2, 2))}
    state = only(init_state(CONFIG, dataset(), 0))._replace(barrier=jnp.float32(0.5), **zeros)
    constraints = losses.Constraints(error, error, other, jnp.float32(0))
    first = update_duals(config, state, constraints)
    assert first.barrier == pytest.approx(0.5 + (2 + 1) / 4)
    doubled = constraints._replace(second=2 * other)
    second = update_duals(config, first._replace(step=jnp.int32(1)), doubled)
    expected = 1.1 * np.array([[2, 0], [-3, 1]])
    np.testing.assert_allclose(second.quadratic_average, expected, rtol=1e-6)


def test_constraints_of_visits_are_the_mean_of_sampled_ones_and_the_graph_term_stays_sampled():
    sizes = {"hidden": 5, "layers": 1}
    config = allo(network=sizes, train={"constraint": "visits"})
    learners = init_state(config, dataset(), 0)
    state, data = only(learners), make_data(config, learners, dataset())
    batch = draw(config.train, data, jax.random.key(5), jnp.int32(0))
    assert batch.constraint_states.shape == (0, config.train.batch_size)
    value, (terms, constraints) = objective(state.params, config, state, data, batch)
    table = tables(config, learners, dataset())[0]
    starts = dataset().train.state[dataset().train.starts]
    phi = jnp.asarray(table[starts])
    np.testing.assert_allclose(constraints.error, losses.error_matrix(phi), atol=1e-5)
    moved = jnp.square(table[batch.state] - table[batch.later_state]).mean(0).sum()
    assert terms["graph"] == pytest.approx(0.5 * float(moved), rel=1e-5)
    assert np.isfinite(value)


def test_records_of_twenty_or_sixty_steps_learn_the_same():
    longer = allo(train={"record_every": 60, "evaluate_every": 60})
    ends = [last(each).state._replace(snapshots=None) for each in (CONFIG, longer)]
    np.testing.assert_equal(*map(to_arrays, ends))


@pytest.mark.full
def test_each_of_three_learners_equals_one_trained_alone():
    config = allo(seeds=3, train={"steps": 20})
    together = last(config, 4)
    assert together.metrics["loss/seed"].shape == (1, 3)
    assert together.metrics["cosine/seed"].shape == (1, 3, 3)
    alone, begun = allo(train={"steps": 20}), init_state(config, dataset(), 4)
    learners = [of_learner(together.state, i) for i in range(3)]
    for i, learner in enumerate(learners):
        alike(learner, last(alone, 4, of_learner(begun, i)).state, atol=1e-5)
    first, second, _ = (to_arrays(learner) for learner in learners)
    kernels = [name for name in first if name.startswith("params") and name.endswith("kernel")]
    assert not any(np.array_equal(first[name], second[name]) for name in kernels)


def test_without_held_out_walks_the_held_out_part_is_empty_and_its_scores_are_absent():
    none = collect(allo(collect={"held_out_fraction": 0.0}), 0)
    assert len(none.held_out.starts) == 0
    scores = evaluate(CONFIG, init_state(CONFIG, dataset(), 0), none, 0).scores
    assert "cosine_mean" in scores
    assert not any(name.startswith("held_out") for name in scores)


@pytest.mark.parametrize(
    ("poisoned", "term", "key"),
    [
        ("barrier", "barrier", "lr_barrier"),
        ("duals", "dual", "lr_dual"),
        ("params", "graph", "learning_rate"),
    ],
)
def test_the_first_term_that_is_not_finite_is_named(poisoned: str, term: str, key: str):
    state = init_state(CONFIG, dataset(), 0)
    broken = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), getattr(state, poisoned))
    expected = rf"^allo step 1: {term} term is not finite \(b=.*\); lower allo.train.{key}$"
    with pytest.raises(TrainingDiverged, match=expected):
        next(train(CONFIG, dataset(), 0, state._replace(**{poisoned: broken})))


def test_a_dataset_of_another_map_is_refused():
    with pytest.raises(DataError, match="collected on another map than maze9"):
        next(train(allo(env={"layout": "maze9"}), dataset(), 0))


@pytest.mark.parametrize(
    ("errors", "warned"),
    [
        ([1.0] * 18 + [1.6] * 2, True),
        ([1.0] * 18 + [1.4] * 2, False),
        ([1.0] * 16 + [5.0] * 4, False),  # before the last tenth
        ([1.0] * 8 + [5.0], False),  # too few to tell
    ],
)
def test_errors_that_grow_by_half_over_the_last_tenth_of_a_training_are_warned_about(
    errors: list[float], warned: bool
):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_if_errors_grew(errors)
    said = [item for item in caught if str(item.message).startswith("allo: total_error grew")]
    assert len(said) == warned


def test_fourier_inputs_depend_on_the_seed_and_are_saved_with_the_learner():
    config = allo(env={"observation": "fourier", "fourier": {"scale": 6.0, "count": 7}})
    first, second = (init_state(config, dataset(), seed) for seed in (1, 2))
    assert inputs_for(config, first, dataset()).shape == (104, 16)
    assert not np.array_equal(first.input_constants, second.input_constants)
    restored = from_arrays(config, dataset(), to_arrays(first))
    np.testing.assert_array_equal(
        tables(config, restored, dataset()), tables(config, first, dataset())
    )


@pytest.mark.full
def test_room4_learns_most_of_its_vectors_in_4000_of_its_20000_steps():
    config = params_with({}).allo
    with shapes_unchecked():
        yields = train(config, collect(config, 0), 0)
        progress = next(item for item in yields if item.step == 4000)
    # 0.04 untrained; it differs by some hundredths with what XLA optimizes.
    assert progress.metrics["cosine_mean"][-1] >= 0.85
