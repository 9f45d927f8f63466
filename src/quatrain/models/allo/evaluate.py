"""state, held-out data -> scores: is each vector right, and is there enough data to know?"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Num

from quatrain.errors import warn
from quatrain.models.allo import held_out
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.rules import GATED, HELD_OUT_GATED
from quatrain.models.allo.train import State, dual_eigenvalues, init_state, inputs_for, tables
from quatrain.models.allo.truth import (
    Spectrum,
    Truth,
    cosine,
    count_pairs,
    is_counted,
    known_truth,
    normalised,
    random_cosine,
    rayleigh,
    strict_cosine,
    true_table,
)
from quatrain.progress import Evaluation
from quatrain.statistics import aggregate_seeds

# Scores of each learner that get an interval over learners.
WITH_INTERVAL = (*(rule.metric for rule in (*GATED, *HELD_OUT_GATED)), "cosine_paper")
RANDOM_TABLES = 10
# Random numbers score more than this, before scaling, only in a very large group.
MUCH_BY_CHANCE = 0.8

Rule = Callable[[np.ndarray, Spectrum], Float[np.ndarray, " d"]]


class Outcomes(NamedTuple):
    """Holds what is compared: the truth, None where states are not counted, and the learned vectors
    of each learner at the observations `places` (held-out ones without a truth).
    """

    spectrum: Spectrum | None
    learned: Float[np.ndarray, "learner states d"]
    places: Num[np.ndarray, "states axes"]


def evaluate(config: AlloConfig, state: State, dataset: Dataset, seed: int) -> Evaluation:
    """Returns the scores, means over learners; WITH_INTERVAL also with sd and 95 % interval.

    `cosine/i`, `cosine_mean` and `cosine_min` are 1 for the true eigenvectors of the buffer and 0
    for random numbers (`strict_cosine`). `cosine_unscaled` is the mean before that scaling, and
    `cosine_single` also without groups; `group_size/i` tells how many true vectors component i may
    mix. `cosine_paper` and `cosine_index` compare with the graph's uniform policy, as Table 1 of
    the ALLO paper does (absent on maps with doors or a goal, and in users' environments). Random
    tables score `floor_random`, `random_unscaled`, `random_single`, `random_paper` and
    `random_index` by the same rules.
    `orthogonality` is 0 for the truth; two components that collapsed into one score 1 in it, though
    each may score 1 in `cosine`. `eigenvalue/i` is the Rayleigh quotient of a learned vector;
    `eigenvalue_dual/i`, from its dual, misses the barrier's share, which `eigenvalue_corrected/i`
    adds (`corrected_eigenvalues`). `held_out_*` are absent without held-out data. On maps
    of more than COUNTED_STATES the truth is that of endless data, so that `ceiling_paper` and
    `held_out_*` are absent: what data lack lowers the cosines.

    With `bins: null` held-out pairs judge the vectors (`held_out.measure`), beside the same for an
    untrained network (`untrained_*`) and for pairs whose later states are permuted (`permuted_*`);
    all of the above is there only where the walks' states can be counted.
    """
    truth = known_truth(config, dataset)
    scores: dict[str, float] = {}
    if not config.knows_truth:
        scores, outcomes = _judged_by_pairs(config, state, dataset, seed)
    if truth is not None:
        compared, outcomes = _compared(config, state, dataset, truth, seed)
        scores |= compared
    return Evaluation({name: float(value) for name, value in scores.items()}, outcomes)


def _judged_by_pairs(
    config: AlloConfig, state: State, dataset: Dataset, seed: int
) -> tuple[dict[str, float], Outcomes]:
    pairs = held_out.draw(config, dataset, inputs_for(config, state, dataset), seed)
    rng = np.random.default_rng(seed)
    start, later = held_out.features(config, state.params, pairs)
    untrained = init_state(config, dataset, seed).params
    measured = held_out.measure(start, later)
    references = {
        "untrained": held_out.measure(*held_out.features(config, untrained, pairs)),
        "permuted": held_out.measure(np.stack([*map(rng.permutation, start)]), later),
    }
    quotients = measured.pop("held_out_eigenvalue")
    by_learner = [
        {f"held_out_eigenvalue/{i}": quotient for i, quotient in enumerate(quotients[learner])}
        | {name: values[learner] for name, values in measured.items()}
        for learner in range(config.seeds)
    ]
    scores = aggregate_seeds(by_learner, [name for name in WITH_INTERVAL if name in by_learner[0]])
    for reference, values in references.items():
        for name in values.keys() & {"autocorrelation", "consistency"}:
            scores[f"{reference}_{name}"] = float(values[name].mean())
    places = np.asarray(dataset.coords)[pairs.states]
    return scores, Outcomes(None, start, places)


def _compared(
    config: AlloConfig, state: State, dataset: Dataset, truth: Truth, seed: int
) -> tuple[dict[str, float], Outcomes]:
    learned = tables(config, state, dataset)
    rng = np.random.default_rng(seed)
    random = [rng.standard_normal(learned.shape[1:]) for _ in range(RANDOM_TABLES)]
    rules = _rules(truth)
    duals = dual_eigenvalues(config, state)
    corrected = corrected_eigenvalues(config, state, learned, truth.spectrum)
    by_learner = [
        _vector_scores(table, truth.spectrum)
        | _eigenvalue_scores("rayleigh", rayleigh(table, truth.operator), truth.spectrum)
        | _eigenvalue_scores("dual", dual, truth.spectrum)
        | _eigenvalue_scores("corrected", corrected_dual, truth.spectrum)
        | _means(rules, [table], "cosine")
        for table, dual, corrected_dual in zip(learned, duals, corrected, strict=True)
    ]
    _warn_if_truth_is_weak(config, dataset, truth.spectrum)
    scores = (
        aggregate_seeds(by_learner, [name for name in WITH_INTERVAL if name in by_learner[0]])
        | _means(rules, random, "random")
        | _reference_scores(config, dataset, truth.spectrum, random, seed)
        | _truth_scores(config, dataset, truth)
        | _held_out_scores(config, dataset, truth, learned)
    )
    return scores, Outcomes(truth.spectrum, learned, np.asarray(dataset.coords))


def _rules(truth: Truth) -> dict[str, tuple[Rule, Spectrum]]:
    """Returns the rules beside the strict one, each with the truth that it compares with."""
    rules: dict[str, tuple[Rule, Spectrum]] = {
        "unscaled": (cosine, truth.spectrum),
        "single": (single_cosine, truth.spectrum),
    }
    if truth.policy is not None:
        rules |= {"paper": (cosine, truth.policy), "index": (single_cosine, truth.policy)}
    return rules


def _means(
    rules: dict[str, tuple[Rule, Spectrum]], tables: Iterable[np.ndarray], prefix: str
) -> dict[str, float]:
    """Returns the mean score of tables by each rule."""
    return {
        f"{prefix}_{name}": float(np.mean([rule(table, truth) for table in tables]))
        for name, (rule, truth) in rules.items()
    }


def _warn_if_truth_is_weak(config: AlloConfig, dataset: Dataset, truth: Spectrum) -> None:
    ends = np.flatnonzero(dataset.train.terminated) + 1  # no pair starts where episodes end
    unvisited = len(np.setdiff1d(np.flatnonzero(~truth.visited), dataset.train.state[ends]))
    # Where only the walks tell which states there are, none is missing.
    if unvisited > 0 and dataset.next_state is not None:
        warn(
            f"allo: {unvisited} states never start a pair and are left out; "
            "raise allo.collect.num_envs"
        )
    chance = random_cosine(truth, config.network.d).max()
    if chance > MUCH_BY_CHANCE:
        warn(
            f"allo: random numbers score {chance:.2f} before scaling in a group of equal "
            "eigenvalues, within which `cosine` cannot tell vectors apart; see `orthogonality`"
        )


def _vector_scores(table: Float[np.ndarray, "states d"], truth: Spectrum) -> dict[str, float]:
    cosines = strict_cosine(table, truth)
    scores = {f"cosine/{i}": value for i, value in enumerate(cosines)}
    scores |= {"cosine_mean": cosines.mean(), "cosine_min": cosines.min()}
    scores["subspace"] = subspace(table, truth)
    scores["orthogonality"] = orthogonality(table, truth).max()
    return scores


def _eigenvalue_scores(
    name: str, estimate: Float[np.ndarray, " d"], truth: Spectrum
) -> dict[str, Any]:
    """Returns an estimate of each eigenvalue, the mean of |λ̂ − λ|, and the largest |λ̂ − λ| / λ
    where λ is not 0.
    """
    prefix = "eigenvalue" if name == "rayleigh" else f"eigenvalue_{name}"
    scores: dict[str, Any] = {f"{prefix}/{i}": value for i, value in enumerate(estimate)}
    count = min(len(estimate), len(truth.eigenvalues))
    true = truth.eigenvalues[:count]
    error = np.abs(estimate[:count] - true)
    nonzero = true > 1e-6
    scores[f"eigenvalue_error_{name}"] = float(error.mean())
    relative = (error[nonzero] / true[nonzero]).max(initial=0.0)
    scores[f"eigenvalue_relative_error_{name}"] = float(relative)
    return scores


def _reference_scores(
    config: AlloConfig, dataset: Dataset, truth: Spectrum, random: list[np.ndarray], seed: int
) -> dict[str, float]:
    """Returns the strict cosine of the truth itself (1), and of tables without learning.

    These are an untrained network, Gaussian numbers, and a constant.
    """
    best = true_table(truth, min(config.network.d, truth.eigenvectors.shape[1]))
    references: dict[str, Iterable[np.ndarray]] = {
        "ceiling_truth": [best],
        "floor_untrained": tables(config, init_state(config, dataset, seed), dataset),
        "floor_random": random,
        "floor_constant": [np.ones_like(random[0])],
    }
    return {
        name: float(np.mean([strict_cosine(table, truth) for table in reference]))
        for name, reference in references.items()
    }


def _truth_scores(config: AlloConfig, dataset: Dataset, truth: Truth) -> dict[str, float]:
    """Returns what limits the scores: groups, states without data, and `ceiling_paper`.

    `ceiling_paper` is the score of the buffer's true vectors by the paper's metric.
    """
    d = config.network.d
    group = truth.spectrum.group
    sizes = np.bincount(group)[group[:d]]
    scores = {
        "groups": float(len(np.unique(group[:d]))),
        "group_largest": float(sizes.max()),
        "states_unvisited": float((~truth.spectrum.visited).sum()),
    }
    scores |= {f"group_size/{i}": float(size) for i, size in enumerate(sizes)}
    if is_counted(dataset) and truth.policy is not None:
        table = true_table(truth.spectrum, d)
        scores["ceiling_paper"] = float(cosine(table, truth.policy).mean())
    return scores


def _held_out_scores(
    config: AlloConfig, dataset: Dataset, truth: Truth, learned: Float[np.ndarray, "seeds states d"]
) -> dict[str, float]:
    """Returns `held_out_cosine`, of training truth with held-out truth, and `held_out_graph`.

    `held_out_graph` is the sum of Rayleigh quotients on held-out data.
    """
    if not (is_counted(dataset) and len(dataset.held_out.starts)):
        return {}
    held_out = count_pairs(config, dataset, dataset.held_out, truth.policy)
    table = true_table(truth.spectrum, config.network.d)
    cosines = strict_cosine(table, held_out.spectrum)
    quotients = [rayleigh(table, held_out.operator).sum() for table in learned]
    return {"held_out_cosine": float(cosines.mean()), "held_out_graph": float(np.mean(quotients))}


def single_cosine(table: Float[np.ndarray, "states d"], truth: Spectrum) -> Float[np.ndarray, " d"]:
    """Computes `cosine` without groups: |v_iᵀ R f̂_i|, also where a symmetry mixes vectors."""
    return cosine(table, truth, np.arange(len(truth.group)))


def subspace(table: Float[np.ndarray, "states d"], truth: Spectrum) -> float:
    """Computes ‖V_kᵀ R Q_F‖²_F / k at the last k <= d that splits no group; d if there is none.

    Q_F are the first k learned columns, R-orthonormalised.
    """
    d = table.shape[1]
    ends = np.flatnonzero(np.diff(truth.group, append=truth.group[-1] + 1)) + 1
    k = int(ends[ends <= d].max(initial=0)) or d
    root = np.sqrt(truth.starts)[:, None]
    basis = np.linalg.qr(root * normalised(table, truth))[0]
    true = root * truth.eigenvectors
    return float(np.square(true[:, :k].T @ basis[:, :k]).sum() / k)


def orthogonality(
    table: Float[np.ndarray, "states d"], truth: Spectrum
) -> Float[np.ndarray, "d d"]:
    """Computes |FᵀRF − I| of the unscaled table.

    Detects two components that collapsed into one member of a group.
    """
    features = np.asarray(table, np.float64)[truth.visited]
    return np.abs(features.T @ (truth.starts[:, None] * features) - np.eye(features.shape[1]))


def corrected_eigenvalues(
    config: AlloConfig, state: State, learned: Float[np.ndarray, "seeds states d"], truth: Spectrum
) -> Float[np.ndarray, "seeds d"]:
    """Computes −(β_ii + 2 b E_ii) / (4κ): what dual and barrier hold together.

    At a stationary point 4κλ_i + β_ii + 2 b E_ii = 0 with E_ii = φ_iᵀRφ_i − 1 over the whole
    buffer, so this is λ_i before the dual has taken over the barrier's share, too.
    """
    squares = np.square(np.asarray(learned, np.float64)[:, truth.visited])
    error = np.einsum("s,nsd->nd", truth.starts, squares) - 1
    share = np.asarray(state.barrier)[:, None] * error / (2 * config.train.graph_coef)
    return dual_eigenvalues(config, state) - share
