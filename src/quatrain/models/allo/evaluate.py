"""state, held-out data -> scores: is each vector right, and is there enough data to know?"""

import warnings
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

from quatrain.baselines import Gated
from quatrain.models.allo import spectrum
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State, init_state, tables
from quatrain.statistics import aggregate_seeds

LOWER_REFERENCES = ("floor_untrained", "floor_random", "floor_constant")
GATED = (
    Gated(
        "cosine_mean",
        "higher",
        0.005,
        {"default": 0.99, "large": 0.997},
        LOWER_REFERENCES,
        ("ceiling_truth",),
    ),
    Gated("cosine_min", "higher", 0.03, {}),
    Gated("orthogonality", "lower", 0.1, {}),
)
RANDOM_TABLES = 10


def evaluate(
    config: AlloConfig,
    state: State,
    dataset: Dataset,
    seed: int,
) -> dict[str, float]:
    """Returns the scores, means over learners; gated ones also with sd and 95 % interval.

    `cosine*` compare with the true eigenvectors of the buffer; nearly equal eigenvalues form one
    group, whose vectors count as one space. `cosine_paper` and `cosine_index` compare with the
    layout's uniform policy, as Table 1 of the ALLO paper does (absent on maps with doors or a
    goal). `held_out_*` are absent without held-out data.
    """
    d = config.network.d
    states = len(dataset.grid.coords)
    operator = spectrum.operator(dataset.train, states, config.train.discounts)
    truth = spectrum.spectrum(operator, d, config.evaluate.degeneracy_tol)
    learned = tables(config, state, dataset)
    eigenvalues = -np.diagonal(np.asarray(state.duals), axis1=1, axis2=2) / (
        4 * config.train.graph_coef
    )
    by_learner = [
        _learner_scores(table, values, truth, operator)
        for table, values in zip(learned, eigenvalues, strict=True)
    ]
    scores = aggregate_seeds(by_learner, [gated.metric for gated in GATED])
    scores |= (
        _reference_scores(config, dataset, truth, seed)
        | _paper_scores(config, learned, truth, dataset)
        | _held_out_scores(config, learned, truth, dataset)
        | {
            "groups": len(np.unique(truth.group[:d])),
            "states_unvisited": states - truth.visited.sum(),
        }
    )
    _warn_if_truth_is_weak(config, truth)
    return {name: float(value) for name, value in scores.items()}


def _warn_if_truth_is_weak(config: AlloConfig, truth: spectrum.Spectrum) -> None:
    """Warns of unvisited states, and of groups so large that `cosine` means little."""
    unvisited = int((~truth.visited).sum()) - (config.env.map.goal is not None)
    if unvisited > 0:
        warnings.warn(
            f"allo: {unvisited} states never start a pair and are left out; "
            "raise allo.collect.num_envs",
            stacklevel=2,
        )
    largest = np.bincount(truth.group).max()
    if largest > config.network.d / 2:
        warnings.warn(
            f"allo: {largest} eigenvalues form one group, within which `cosine` cannot tell "
            "vectors apart; see `orthogonality`",
            stacklevel=2,
        )


def _learner_scores(
    table: Float[np.ndarray, "states d"],
    dual_eigenvalues: Float[np.ndarray, " d"],
    truth: spectrum.Spectrum,
    operator: spectrum.Operator,
) -> dict[str, float]:
    cosines = spectrum.cosine(table, truth)
    scores = {f"cosine/{i}": value for i, value in enumerate(cosines)}
    scores |= {"cosine_mean": cosines.mean(), "cosine_min": cosines.min()}
    scores["subspace"] = spectrum.subspace(table, truth)[-1]
    scores["orthogonality"] = spectrum.orthogonality(table, truth).max()
    estimates = {"dual": dual_eigenvalues, "rayleigh": spectrum.rayleigh(table, operator)}
    for name, estimate in estimates.items():
        count = min(len(estimate), len(truth.eigenvalues))
        true = truth.eigenvalues[:count]
        error = np.abs(estimate[:count] - true)
        nonzero = true > 1e-6
        scores[f"eigenvalue_error_{name}"] = error.mean()
        scores[f"eigenvalue_relative_error_{name}"] = (error[nonzero] / true[nonzero]).max(
            initial=0.0
        )
    return scores


def true_table(truth: spectrum.Spectrum, d: int) -> Float[np.ndarray, "states d"]:
    """Returns the first d true vectors over all states; 0 where a state was never a start."""
    table = np.zeros((len(truth.visited), d))
    count = min(d, truth.eigenvectors.shape[1])
    table[truth.visited, :count] = truth.eigenvectors[:, :count]
    return table


def _reference_scores(
    config: AlloConfig,
    dataset: Dataset,
    truth: spectrum.Spectrum,
    seed: int,
) -> dict[str, float]:
    """Returns the mean cosine of the truth itself (1), and of tables without learning.

    These are an untrained network, Gaussian numbers, and a constant.
    """
    rng = np.random.default_rng(seed)
    shape = (len(truth.visited), config.network.d)
    references: dict[str, Iterable[np.ndarray]] = {
        "ceiling_truth": [true_table(truth, min(shape[1], truth.eigenvectors.shape[1]))],
        "floor_untrained": tables(config, init_state(config, dataset, seed), dataset),
        "floor_random": [rng.standard_normal(shape) for _ in range(RANDOM_TABLES)],
        "floor_constant": [np.ones(shape)],
    }
    scores = {
        name: np.mean([spectrum.cosine(table, truth).mean() for table in reference])
        for name, reference in references.items()
    }
    truth_score = scores["ceiling_truth"]
    assert abs(truth_score - 1) < 1e-9, f"the truth scores {truth_score} under its own metric"
    return scores


def _paper_scores(
    config: AlloConfig,
    learned: Float[np.ndarray, "seeds states d"],
    truth: spectrum.Spectrum,
    dataset: Dataset,
) -> dict[str, float]:
    """Returns the ALLO paper's metric, and `ceiling_paper`: the buffer's true vectors in it."""
    if config.env.map.doors or int(dataset.grid.goal) >= 0:
        return {}
    paper = spectrum.uniform_policy(np.asarray(dataset.grid.next_state))
    ungrouped = np.arange(len(paper.group))
    return {
        "cosine_paper": np.mean([spectrum.cosine(table, paper) for table in learned]),
        "cosine_index": np.mean([spectrum.cosine(table, paper, ungrouped) for table in learned]),
        "ceiling_paper": spectrum.cosine(true_table(truth, config.network.d), paper).mean(),
    }


def _held_out_scores(
    config: AlloConfig,
    learned: Float[np.ndarray, "seeds states d"],
    truth: spectrum.Spectrum,
    dataset: Dataset,
) -> dict[str, float]:
    """Returns `held_out_cosine`, of training truth with held-out truth, and `held_out_graph`.

    `held_out_graph` is the sum of Rayleigh quotients on held-out data.
    """
    if not len(dataset.held_out.starts):
        return {}
    d = config.network.d
    operator = spectrum.operator(dataset.held_out, len(truth.visited), config.train.discounts)
    cosines = spectrum.cosine(
        true_table(truth, d), spectrum.spectrum(operator, d, config.evaluate.degeneracy_tol)
    )
    return {
        "held_out_cosine": cosines.mean(),
        "held_out_graph": np.mean([spectrum.rayleigh(table, operator).sum() for table in learned]),
    }
