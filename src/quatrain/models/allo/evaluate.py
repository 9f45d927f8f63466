"""learner, held-out data -> scores: is each learned vector the right one, and is the data enough to tell?"""

import warnings

import numpy as np
from jaxtyping import Float

from quatrain.baselines import Gated
from quatrain.models.allo import spectrum
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.train import State, init_state, tables
from quatrain.statistics import aggregate_seeds

FLOORS = ("floor_untrained", "floor_random", "floor_constant")
GATED = (
    Gated(
        "cosine_mean",
        "higher",
        0.005,
        {"default": 0.99, "large": 0.997},
        FLOORS,
        ("ceiling_truth",),
    ),
    Gated("cosine_min", "higher", 0.03, {}),
    Gated("orthogonality", "lower", 0.1, {}),
)
RANDOM_TABLES = 10


def evaluate(config: AlloConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Metrics of allo; with several learners means, and for what is judged also sd and 95 % interval over learners.

    `cosine*` compare with the truth of the buffer itself (groups of nearly equal eigenvalues count as one space);
    `cosine_paper`, `cosine_index` with the layout's uniform policy, as Table 1 of the ALLO paper does (absent on maps
    with doors or a goal); `held_out_*` are absent without held-out data.
    """
    d, states = config.network.d, len(dataset.grid.coords)
    operator = spectrum.operator(dataset.train, states, config.train.discounts)
    truth = spectrum.spectrum(operator, d, config.evaluate.degeneracy_tol)
    learned = tables(config, state, dataset)
    duals = np.diagonal(np.asarray(state.duals), axis1=1, axis2=2)
    eigenvalues = -duals / (4 * config.train.graph_coef)
    per_learner = [
        _scores(table, values, truth, operator)
        for table, values in zip(learned, eigenvalues, strict=True)
    ]
    scores = aggregate_seeds(per_learner, [gated.metric for gated in GATED])
    scores |= _ceiling_truth(truth, d) | _floors(config, dataset, truth, seed)
    scores |= _paper(config, learned, truth, dataset) | _held_out(config, learned, truth, dataset)
    scores["groups"] = float(len(np.unique(truth.group[:d])))
    scores["states_unvisited"] = float(states - truth.visited.sum())
    _warn_of_a_weak_truth(config, truth)
    return {name: float(value) for name, value in scores.items()}


def _warn_of_a_weak_truth(config: AlloConfig, truth: spectrum.Spectrum) -> None:
    """States that the data never saw, and groups so large that `cosine` says little."""
    unvisited = int((~truth.visited).sum()) - (config.env.map.goal is not None)
    if unvisited > 0:
        text = f"allo: {unvisited} states never start a pair and are left out; raise allo.collect.num_envs"
        warnings.warn(text, stacklevel=2)
    largest = np.bincount(truth.group).max()
    if largest > config.network.d / 2:
        warnings.warn(
            f"allo: {largest} eigenvalues form one group, where `cosine` tells nothing apart; see `orthogonality`",
            stacklevel=2,
        )


def _scores(
    table: Float[np.ndarray, "states d"],
    eigenvalue_dual: Float[np.ndarray, " d"],
    truth: spectrum.Spectrum,
    operator: spectrum.Operator,
) -> dict[str, float]:
    cosines = spectrum.cosine(table, truth)
    scores = {f"cosine/{i}": value for i, value in enumerate(cosines)}
    scores |= {"cosine_mean": cosines.mean(), "cosine_min": cosines.min()}
    scores["subspace"] = spectrum.subspace(table, truth)[-1]
    scores["orthogonality"] = spectrum.orthogonality(table, truth).max()
    claims = {"dual": eigenvalue_dual, "rayleigh": spectrum.rayleigh(table, operator)}
    for name, claimed in claims.items():
        count = min(len(claimed), len(truth.eigenvalues))
        error, value = (
            np.abs(claimed[:count] - truth.eigenvalues[:count]),
            truth.eigenvalues[:count],
        )
        nonzero = value > 1e-6
        scores[f"eigenvalue_error_{name}"] = error.mean()
        scores[f"eigenvalue_relative_error_{name}"] = (error[nonzero] / value[nonzero]).max(
            initial=0.0
        )
    return scores


def _ceiling_truth(truth: spectrum.Spectrum, d: int) -> dict[str, float]:
    """The truth under its own metric: 1, or the metric is wrong."""
    count = min(d, truth.eigenvectors.shape[1])
    ceiling = spectrum.cosine(true_table(truth, count), truth).mean()
    assert abs(ceiling - 1) < 1e-9, f"the truth scores {ceiling} under its own metric"
    return {"ceiling_truth": ceiling}


def true_table(truth: spectrum.Spectrum, d: int) -> Float[np.ndarray, "states d"]:
    """The first d true vectors as a table over all states; 0 where a state was never a start."""
    table = np.zeros((len(truth.visited), d))
    count = min(d, truth.eigenvectors.shape[1])
    table[truth.visited, :count] = truth.eigenvectors[:, :count]
    return table


def _floors(
    config: AlloConfig, dataset: Dataset, truth: spectrum.Spectrum, seed: int
) -> dict[str, float]:
    """What costs no learning: the untrained network, a Gaussian table, a constant."""
    rng = np.random.default_rng(seed)
    untrained = init_state(config, dataset, seed)
    shape = (len(truth.visited), config.network.d)
    tried = {
        "floor_untrained": list(tables(config, untrained, dataset)),
        "floor_random": [rng.standard_normal(shape) for _ in range(RANDOM_TABLES)],
        "floor_constant": [np.ones(shape)],
    }
    return {
        name: float(np.mean([spectrum.cosine(one, truth).mean() for one in several]))
        for name, several in tried.items()
    }


def _paper(
    config: AlloConfig,
    learned: Float[np.ndarray, "seeds states d"],
    truth: spectrum.Spectrum,
    dataset: Dataset,
) -> dict[str, float]:
    """The ALLO paper's own metric, and `ceiling_paper`: what the buffer's true vectors score in it."""
    if config.env.map.doors or int(dataset.grid.goal) >= 0:
        return {}
    paper = spectrum.uniform_policy(np.asarray(dataset.grid.next_state))
    alone = np.arange(len(paper.group))
    return {
        "cosine_paper": float(np.mean([spectrum.cosine(table, paper) for table in learned])),
        "cosine_index": float(np.mean([spectrum.cosine(table, paper, alone) for table in learned])),
        "ceiling_paper": float(spectrum.cosine(true_table(truth, config.network.d), paper).mean()),
    }


def _held_out(
    config: AlloConfig,
    learned: Float[np.ndarray, "seeds states d"],
    truth: spectrum.Spectrum,
    dataset: Dataset,
) -> dict[str, float]:
    """`held_out_cosine`: the training truth in the eyes of held-out data; `held_out_graph`: Σ Rayleigh there."""
    if not len(dataset.held_out.starts):
        return {}
    d = config.network.d
    operator = spectrum.operator(dataset.held_out, len(truth.visited), config.train.discounts)
    other = spectrum.spectrum(operator, d, config.evaluate.degeneracy_tol)
    return {
        "held_out_cosine": float(spectrum.cosine(true_table(truth, d), other).mean()),
        "held_out_graph": float(
            np.mean([spectrum.rayleigh(table, operator).sum() for table in learned])
        ),
    }
