"""The law of endless data, by sparse matrices, is what dense ones say and what data tend to."""

from typing import Any

import numpy as np
import pytest

from quatrain.envs.grid.catalogue import named_layout
from quatrain.envs.grid.dynamics import make_grid
from quatrain.errors import ConfigError
from quatrain.models.allo import truth
from quatrain.models.allo.collect import collect
from quatrain.models.allo.evaluate import evaluate
from quatrain.models.allo.plots import draw_vectors
from quatrain.models.allo.train import init_state
from quatrain.replay.episodes.lags import lag_weights
from tests.conftest import small

DISCOUNTS = (0.2, 0.9, 0.999, 0.999)
HORIZONS = np.array([*range(60, -1, -1), *range(7, -1, -1)], np.uint8)


def walk_on(name: str) -> Any:
    return truth.walk_matrix(make_grid(named_layout(name)).next_state)


@pytest.mark.parametrize("name", ["room4", "room4_symmetric", "maze19"])
def test_sparse_eigenpairs_of_the_policy_equal_dense_ones(name: str):
    walk = walk_on(name)
    dense = truth.uniform_policy(walk)
    _, sparse = truth.law_spectra(truth.law_of(walk, HORIZONS, DISCOUNTS), 11, 0.0)
    np.testing.assert_allclose(sparse.eigenvalues[:11], dense.eigenvalues[:11], atol=1e-11)
    assert sparse.group[:11].tolist() == dense.group[:11].tolist()
    np.testing.assert_allclose(truth.cosine(sparse.eigenvectors[:, :11], dense), 1, atol=1e-8)


def dense_law(walk: np.ndarray, horizons: np.ndarray) -> np.ndarray:
    """Adds power after power of a dense P."""
    states = len(walk)
    power, total = np.eye(states), np.zeros((states, states))
    share = np.bincount(horizons)[1:] / (horizons > 0).sum()
    for lag in range(1, len(share) + 1):
        power = power @ walk
        total += share @ lag_weights(lag, len(share), DISCOUNTS)[1:] * power
    return total


def test_the_law_has_the_operator_and_eigenpairs_of_dense_powers():
    walk = walk_on("room4")
    whole = truth.law_of(walk, HORIZONS, DISCOUNTS)
    assert whole.weights.sum() == pytest.approx(1)
    laplacian = (np.eye(104) - dense_law(walk.toarray(), HORIZONS)) / 104
    operator = truth.law_operator(whole)
    table = np.random.default_rng(0).standard_normal((104, 5))
    np.testing.assert_allclose(operator.laplacian @ table, laplacian @ table, atol=1e-12)
    dense = truth.spectrum(truth.Operator(laplacian, *operator[1:]), 5, 0.02)
    sparse, _ = truth.law_spectra(whole, 5, 0.02)
    np.testing.assert_allclose(sparse.eigenvalues[:5], dense.eigenvalues[:5], atol=1e-10)
    np.testing.assert_allclose(truth.cosine(sparse.eigenvectors[:, :5], dense), 1, atol=1e-8)
    np.testing.assert_allclose(
        truth.rayleigh(sparse.eigenvectors[:, :5], operator), sparse.eigenvalues[:5], atol=1e-10
    )


def test_the_law_has_the_whole_group_of_near_eigenvalues_that_straddles_d(
    monkeypatch: pytest.MonkeyPatch,
):
    """Of four rooms the second and the third eigenvalue differ by 16 %."""
    whole = truth.law_of(walk_on("room4"), np.arange(60, -1, -1), (0.2,))
    full, _ = truth.law_spectra(whole, 11, 0.2)
    monkeypatch.setattr(truth, "SPARE_PAIRS", 0)
    cut, _ = truth.law_spectra(whole, 2, 0.2)
    assert cut.group[:4].tolist() == full.group[:4].tolist() == [0, 1, 1, 2]
    np.testing.assert_allclose(truth.cosine(full.eigenvectors[:, [0, 2]], cut), 1)


def test_a_map_of_more_states_than_are_counted_is_scored_and_drawn_by_its_law(
    monkeypatch: pytest.MonkeyPatch,
):
    config = small("allo", collect={"num_envs": 400, "steps_per_env": 100, "held_out_fraction": 0})
    dataset = collect(config, 0)
    from_data = truth.true_spectrum(config, dataset)
    monkeypatch.setattr(truth, "COUNTED_STATES", 100)
    monkeypatch.setattr(truth, "_last", {})
    whole = truth.true_spectrum(config, dataset)
    d = config.network.d
    np.testing.assert_allclose(
        from_data.spectrum.eigenvalues[:d], whole.spectrum.eigenvalues[:d], atol=0.02
    )
    cosines = truth.cosine(truth.true_table(from_data.spectrum, d), whole.spectrum)
    assert cosines.min() > 0.9
    scores = evaluate(config, init_state(config, dataset, 0), dataset, 0).scores
    assert scores["ceiling_truth"] == pytest.approx(1)
    assert abs(scores["floor_random"]) < 0.1
    assert not {"ceiling_paper", "held_out_cosine"} & set(scores)
    figure = draw_vectors(truth.true_table(from_data.spectrum, d), whole.spectrum, dataset)
    assert len(figure.axes) >= 2 * d


@pytest.mark.parametrize(
    ("text", "start", "reason"),
    [
        ("DR" + ",." * 63, "uniform", "one-way doors"),
        ("G" + ",." * 63, "uniform", "a goal"),
        ("S" + ",." * 63, "layout", "start: layout"),
    ],
)
def test_what_no_law_holds_is_refused_on_a_large_map(text: str, start: str, reason: str):
    rows = "\n".join([text, *[",".join("." * 64)] * 63])
    layout = {"name": "map.txt", "text": rows}
    with pytest.raises(ConfigError, match=f"4,096 states; {reason} needs a matrix of all pairs"):
        small("allo", env={"layout": layout, "start": start})
