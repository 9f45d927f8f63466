"""Truth from a buffer, and metrics that are 1 for the truth and less for anything else."""

from collections.abc import Sequence

import numpy as np
import pytest

from quatrain.envs.grid.catalogue import named_layout
from quatrain.envs.grid.dynamics import make_grid
from quatrain.envs.grid.layouts import Layout, parse_layout
from quatrain.models.allo import truth as spectrum
from quatrain.models.allo.evaluate import orthogonality, single_cosine, subspace
from quatrain.models.allo.truth import true_table
from tests.replay.trajectories import from_trajectories


def simple(table: np.ndarray, eigenvalues: Sequence[float], tol: float = 0.0) -> spectrum.Spectrum:
    """A spectrum on uniform starts with these orthogonal columns as truth."""
    states = len(table)
    scaled = table / np.sqrt(np.square(table).mean(0))
    values = np.array(eigenvalues)
    return spectrum.Spectrum(
        values,
        scaled,
        spectrum.group_of(values, tol),
        np.full(states, 1 / states),
        np.ones(states, bool),
    )


def policy_on(layout: Layout) -> spectrum.Spectrum:
    return spectrum.uniform_policy(spectrum.walk_matrix(make_grid(layout).next_state))


@pytest.fixture
def walsh() -> np.ndarray:
    """Four orthogonal columns of 4 states."""
    return np.array([[1, 1, 1, 1], [1, 1, -1, -1], [1, -1, 1, -1], [1, -1, -1, 1]], float)


@pytest.mark.parametrize("discount", [0.0, 0.9, 1.0])
def test_two_state_buffer_has_the_operator_and_eigenvalues_computed_by_hand(discount: float):
    operator = spectrum.operator(from_trajectories([[0, 1, 1], [1, 0]]), 2, (discount,))
    np.testing.assert_allclose(operator.starts, [1 / 3, 2 / 3])
    np.testing.assert_allclose(operator.laplacian, np.array([[1, -1], [-1, 1]]) / 3, atol=1e-12)
    truth = spectrum.spectrum(operator, 2, tol=0.02)
    np.testing.assert_allclose(truth.eigenvalues, [0, 1.5], atol=1e-12)
    second = truth.eigenvectors[:, 1]
    np.testing.assert_allclose(second * np.sign(second[1]), [-np.sqrt(2), 1 / np.sqrt(2)])


def test_the_uniform_policy_has_the_known_eigenvalues_of_a_corridor_and_of_four_rooms():
    corridor = policy_on(parse_layout("...", "corridor"))
    np.testing.assert_allclose(corridor.eigenvalues, [0, 0.25, 0.75], atol=1e-12)
    rooms = policy_on(named_layout("room4"))
    mu, discount = 1 - rooms.eigenvalues[:10], 0.2
    expected = [0, 0.0071, 0.0085, 0.0175, 0.0874, 0.1076, 0.1125, 0.1149, 0.1244, 0.1308]
    values = 1 - (1 - discount) * mu / (1 - discount * mu)
    np.testing.assert_allclose(values, expected, atol=6e-5)
    discount, lags = 0.9, np.arange(1, 51)[:, None]
    sums = np.cumsum((1 - discount) * discount ** (lags - 1) * mu**lags, axis=0)
    expected = [0, 0.0397, 0.0468, 0.0928, 0.3538, 0.4075, 0.4194, 0.4251, 0.4469, 0.4612]
    np.testing.assert_allclose(1 - (sums / (1 - discount**lags)).mean(0), expected, atol=5e-5)
    first, second = policy_on(named_layout("room4_symmetric")).eigenvalues[1:3]
    assert second - first < 1e-12 < 1e-4 < mu[1] - mu[2]


def test_truth_scores_one_and_signs_change_nothing(walsh: np.ndarray):
    truth = simple(walsh, [0, 0.1, 0.3, 0.9])
    np.testing.assert_allclose(spectrum.cosine(walsh * [1, -1, -1, 1], truth), 1)
    assert subspace(walsh, truth) == pytest.approx(1)


def test_rotation_inside_a_group_shows_against_single_vectors_only(walsh: np.ndarray):
    truth = simple(walsh, [0, 0.3, 0.3, 0.9], tol=0.02)
    turned = walsh.copy()
    turned[:, 1], turned[:, 2] = walsh[:, 1] + walsh[:, 2], walsh[:, 1] - walsh[:, 2]
    np.testing.assert_allclose(spectrum.cosine(turned, truth), 1)
    alone = single_cosine(turned, truth)
    np.testing.assert_allclose(alone, [1, np.sqrt(0.5), np.sqrt(0.5), 1])


def test_two_columns_collapsed_inside_a_group_show_in_orthogonality_only(walsh: np.ndarray):
    truth = simple(walsh, [0, 0.3, 0.3, 0.9], tol=0.02)
    collapsed = walsh[:, [0, 1, 1, 3]]
    np.testing.assert_allclose(spectrum.cosine(collapsed, truth), 1)
    assert orthogonality(walsh, truth).max() == pytest.approx(0)
    assert orthogonality(collapsed, truth)[1, 2] == pytest.approx(1)


def test_a_group_that_straddles_d_counts_with_its_whole_eigenspace(walsh: np.ndarray):
    truth = simple(walsh, [0, 0.1, 0.5, 0.505], tol=0.02)
    assert truth.group.tolist() == [0, 1, 2, 2]
    learned = walsh[:, [0, 1, 3]]
    np.testing.assert_allclose(spectrum.cosine(learned, truth), 1)
    assert subspace(walsh[:, [0, 1, 2]], truth) == subspace(learned, truth) == 1


def test_a_wrong_column_scores_zero_and_a_zero_column_does_not_divide_by_zero(walsh: np.ndarray):
    truth = simple(walsh[:, :3], [0, 0.1, 0.5])
    np.testing.assert_allclose(spectrum.cosine(walsh[:, [3, 0]], truth), 0, atol=1e-12)
    np.testing.assert_allclose(spectrum.cosine(np.zeros((4, 2)), truth), 0)


def test_a_state_that_never_starts_a_pair_is_left_out_of_the_truth():
    operator = spectrum.operator(from_trajectories([[0, 1, 0, 1, 3]]), 5, (0.5,))
    assert operator.visited.tolist() == [True, True, False, False, False]
    truth = spectrum.spectrum(operator, 2, 0.02)
    np.testing.assert_allclose(spectrum.cosine(true_table(truth, 2), truth), 1)


def test_a_free_state_takes_the_value_between_its_neighbours():
    """State 2 is only an end: it is free between 0 and 1, which halves their distance."""
    walks = [[0, 2], [1, 2]]
    operator = spectrum.operator(from_trajectories(walks), 3, (0.0,))
    np.testing.assert_allclose(operator.laplacian, np.array([[1, -1], [-1, 1]]) / 8)
    np.testing.assert_allclose(operator.starts, [0.5, 0.5])


@pytest.mark.parametrize(
    ("layout", "least", "most"),
    [("., ., ., .\n., x, ., .", 0.99, 1.0), ("., DR,., .\n., x, ., .", 0.0, 0.8)],
    ids=["without doors", "with a door"],
)
def test_only_without_doors_is_the_truth_that_of_the_uniform_policy(
    layout: str, least: float, most: float
):
    parsed = parse_layout(layout, "doors")
    grid = make_grid(parsed)
    rng = np.random.default_rng(0)
    walks = []
    for _ in range(40):
        states = [int(rng.integers(len(grid.coords)))]
        for action in rng.integers(0, 4, 250):
            states.append(int(grid.next_state[states[-1], action]))
        walks.append(states)
    operator = spectrum.operator(from_trajectories(walks), len(grid.coords), (0.9,))
    truth = spectrum.spectrum(operator, 4, 0.02)
    assert least <= spectrum.cosine(true_table(truth, 4), policy_on(parsed)).mean() <= most


CROWDED = np.concatenate([[0, 0.5], 0.9 + 0.001 * np.array([0, 1, 2, 6, 7, 8, 20, 21])])


def test_a_group_of_many_near_eigenvalues_is_cut_at_its_widest_gaps():
    assert spectrum.group_of(CROWDED, 0.0).tolist() == list(range(10))
    assert spectrum.group_of(CROWDED, 0.02).tolist() == [0, 1, 2, 2, 2, 3, 3, 3, 4, 4]
    near = np.concatenate([[0], np.linspace(0.9, 0.95, 102)])
    assert np.bincount(spectrum.group_of(near, 0.02)).max() <= spectrum.MAX_DISTINCT


def test_eigenvalues_that_a_symmetry_makes_equal_are_not_cut_apart():
    distinct = np.array([0, 1, 2, 2, 2, 3, 3, 3, 4, 5])  # of the map: two threefold eigenvalues
    values = np.concatenate([[0, 0.5], 0.9 + 0.001 * np.arange(8)])
    assert spectrum.group_of(values, 0.02, distinct).tolist() == [0, 1, *[2] * 3, *[3] * 5]
    components = np.array([0, 1e-15, 2e-15, 3e-15, 4e-15, 0.1])
    assert spectrum.group_of(components, 0.02).tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("states", [5, 11, 104])
@pytest.mark.parametrize("tol", [0.0, 0.2])
def test_strict_cosine_is_zero_for_random_tables_and_one_for_the_truth(states: int, tol: float):
    rng = np.random.default_rng(0)
    vectors = np.linalg.qr(rng.standard_normal((states, states)))[0]
    truth = simple(vectors, [0, *np.linspace(0.9, 0.95, states - 1)], tol)
    d = min(states, 11)
    np.testing.assert_allclose(spectrum.strict_cosine(vectors[:, :d], truth), 1)
    scores = [spectrum.strict_cosine(rng.standard_normal((states, d)), truth) for _ in range(2000)]
    assert abs(np.mean(scores)) < 4 * np.std(scores) / np.sqrt(2000)
    np.testing.assert_allclose(np.mean(scores, 0), 0, atol=0.06)


def test_where_starts_are_uneven_random_directions_score_zero_and_random_numbers_lean_to_them():
    rng = np.random.default_rng(0)
    starts = np.geomspace(1, 1000, 40)
    scale = np.sqrt(starts / starts.sum())[:, None]
    # The constant first, as in every spectrum.
    basis = np.linalg.qr(np.hstack([scale, rng.standard_normal((40, 39))]))[0]
    truth = simple(np.eye(40), np.arange(40.0))._replace(
        eigenvectors=basis / scale, starts=scale[:, 0] ** 2
    )
    np.testing.assert_allclose(spectrum.strict_cosine(truth.eigenvectors[:, :5], truth), 1)
    numbers = rng.standard_normal((4000, 40, 5))
    directions = [spectrum.strict_cosine(table / scale, truth) for table in numbers]
    np.testing.assert_allclose(np.mean(directions, 0), 0, atol=0.01)
    leaning = np.mean([spectrum.strict_cosine(table, truth) for table in numbers], 0)
    assert leaning[0] > 0.05


def test_a_random_table_does_not_profit_from_discounts_that_bring_all_eigenvalues_together():
    """Under a long discount all eigenvalues of four rooms but the first are within 2 %."""
    mu, discount = 1 - policy_on(named_layout("room4")).eigenvalues, 0.9999
    values = 1 - (1 - discount) * mu / (1 - discount * mu)
    truth = simple(np.linalg.qr(np.random.default_rng(1).standard_normal((104, 104)))[0], values)
    lenient = np.concatenate([[0], np.cumsum(np.diff(values) > 0.02 * values[1:])])
    strict = truth._replace(group=spectrum.group_of(values, 0.02))
    table = np.random.default_rng(2).standard_normal((104, 11))
    assert np.bincount(lenient).max() == 103
    assert spectrum.cosine(table, truth._replace(group=lenient)).mean() > 0.9
    assert spectrum.cosine(table, strict).mean() < 0.2
    assert abs(spectrum.strict_cosine(table, strict).mean()) < 0.05


def test_a_map_of_isolated_cells_scores_zero_because_its_truth_says_nothing():
    truth = simple(np.eye(4), [0.0] * 4)
    np.testing.assert_allclose(spectrum.random_cosine(truth, 3), 1)
    np.testing.assert_array_equal(spectrum.strict_cosine(np.eye(4)[:, :3], truth), 0)


def test_the_rayleigh_quotient_is_exact_for_the_truth_and_second_order_for_a_small_error():
    operator = spectrum.operator(from_trajectories([[0, 1, 2, 3, 3, 2, 1, 0, 0]]), 4, (0.5,))
    truth = spectrum.spectrum(operator, 4, 0.02)
    exact = spectrum.rayleigh(truth.eigenvectors, operator)
    np.testing.assert_allclose(exact, truth.eigenvalues, atol=1e-12)
    tilted = truth.eigenvectors + 0.01 * truth.eigenvectors[:, [1, 2, 3, 0]]
    assert np.abs(spectrum.rayleigh(tilted, operator) - truth.eigenvalues).max() < 3e-4
