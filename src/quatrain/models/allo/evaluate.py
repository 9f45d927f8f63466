"""state, held-out data -> scores: is each vector right, and is there enough data to know?"""

import warnings
from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Float

from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning import fit
from quatrain.models.allo.learning.learner import State, init_state, tables
from quatrain.models.allo.learning.spectrum import Spectrum
from quatrain.models.allo.learning.truth import (
    Truth,
    held_out_spectrum,
    is_counted,
    true_spectrum,
    true_table,
)
from quatrain.models.allo.rules import GATED
from quatrain.statistics import aggregate_seeds

# Scores of each learner that get an interval over learners.
WITH_INTERVAL = (*(gated.metric for gated in GATED), "cosine_paper")
RANDOM_TABLES = 10
# Random numbers score more than this, before scaling, only in a very large group.
MUCH_BY_CHANCE = 0.8

Rule = Callable[[np.ndarray, Spectrum], Float[np.ndarray, " d"]]


def evaluate(config: AlloConfig, state: State, dataset: Dataset, seed: int) -> dict[str, float]:
    """Returns the scores, means over learners; WITH_INTERVAL also with sd and 95 % interval.

    `cosine/i`, `cosine_mean` and `cosine_min` are 1 for the true eigenvectors of the buffer and 0
    for random numbers (`fit.strict_cosine`). `cosine_unscaled` is the mean before that scaling, and
    `cosine_single` also without groups; `group_size/i` tells how many true vectors component i may
    mix. `cosine_paper` and `cosine_index` compare with the graph's uniform policy, as Table 1 of
    the ALLO paper does (absent on maps with doors or a goal, and in users' environments). Random
    tables score `floor_random`, `random_unscaled`, `random_single`, `random_paper` and
    `random_index` by the same rules.
    `orthogonality` is 0 for the truth; two components that collapsed into one score 1 in it, though
    each may score 1 in `cosine`. `eigenvalue/i` is the Rayleigh quotient of a learned vector;
    `eigenvalue_dual/i`, from its dual, misses the barrier's share, which `eigenvalue_corrected/i`
    adds (`fit.corrected_eigenvalues`). `held_out_*` are absent without held-out data. On maps
    of more than COUNTED_STATES the truth is that of endless data, so that `ceiling_paper` and
    `held_out_*` are absent: what data lack lowers the cosines.
    """
    truth = true_spectrum(config, dataset)
    learned = tables(config, state, dataset)
    random = _random_tables(config, dataset, seed)
    rules = _rules(truth)
    duals = fit.dual_eigenvalues(config, state)
    corrected = fit.corrected_eigenvalues(config, state, learned, truth.spectrum)
    by_learner = [
        _vector_scores(table, truth.spectrum)
        | _eigenvalue_scores(
            {
                "rayleigh": fit.rayleigh(table, truth.operator),
                "dual": dual,
                "corrected": corrected_dual,
            },
            truth.spectrum,
        )
        | _means(rules, [table], "cosine")
        for table, dual, corrected_dual in zip(learned, duals, corrected, strict=True)
    ]
    _warn_if_truth_is_weak(config, dataset, truth.spectrum)
    scores = (
        aggregate_seeds(by_learner, [name for name in WITH_INTERVAL if name in by_learner[0]])
        | _means(rules, random, "random")
        | _reference_scores(config, dataset, truth.spectrum, random, seed)
        | _truth_scores(config, dataset, truth)
        | _held_out_scores(config, learned, truth.spectrum, dataset)
    )
    return {name: float(value) for name, value in scores.items()}


def _rules(truth: Truth) -> dict[str, tuple[Rule, Spectrum]]:
    """Returns the rules beside the strict one, each with the truth that it compares with."""
    rules: dict[str, tuple[Rule, Spectrum]] = {
        "unscaled": (fit.cosine, truth.spectrum),
        "single": (fit.single_cosine, truth.spectrum),
    }
    if truth.policy is not None:
        rules |= {"paper": (fit.cosine, truth.policy), "index": (fit.single_cosine, truth.policy)}
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
        warnings.warn(
            f"allo: {unvisited} states never start a pair and are left out; "
            "raise allo.collect.num_envs",
            stacklevel=2,
        )
    chance = fit.random_cosine(truth, config.network.d).max()
    if chance > MUCH_BY_CHANCE:
        warnings.warn(
            f"allo: random numbers score {chance:.2f} before scaling in a group of equal "
            "eigenvalues, within which `cosine` cannot tell vectors apart; see `orthogonality`",
            stacklevel=2,
        )


def _vector_scores(table: Float[np.ndarray, "states d"], truth: Spectrum) -> dict[str, float]:
    cosines = fit.strict_cosine(table, truth)
    scores = {f"cosine/{i}": value for i, value in enumerate(cosines)}
    scores |= {"cosine_mean": cosines.mean(), "cosine_min": cosines.min()}
    scores["subspace"] = fit.subspace(table, truth)[-1]
    scores["orthogonality"] = fit.orthogonality(table, truth).max()
    return scores


def _eigenvalue_scores(
    estimates: dict[str, Float[np.ndarray, " d"]], truth: Spectrum
) -> dict[str, float]:
    """Returns the estimates by component, and how far each is from the truth."""
    scores: dict[str, float] = {}
    for name, estimate in estimates.items():
        prefix = "eigenvalue" if name == "rayleigh" else f"eigenvalue_{name}"
        scores |= {f"{prefix}/{i}": value for i, value in enumerate(estimate)}
        errors = fit.eigenvalue_errors(estimate, truth)
        scores[f"eigenvalue_error_{name}"] = errors.absolute
        scores[f"eigenvalue_relative_error_{name}"] = errors.largest_relative
    return scores


def _random_tables(config: AlloConfig, dataset: Dataset, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shape = (len(dataset.coords), config.network.d)
    return [rng.standard_normal(shape) for _ in range(RANDOM_TABLES)]


def _reference_scores(
    config: AlloConfig, dataset: Dataset, truth: Spectrum, random: list[np.ndarray], seed: int
) -> dict[str, float]:
    """Returns the strict cosine of the truth itself (1), and of tables without learning.

    These are an untrained network, Gaussian numbers, and a constant.
    """
    d = config.network.d
    references: dict[str, Iterable[np.ndarray]] = {
        "ceiling_truth": [true_table(truth, min(d, truth.eigenvectors.shape[1]))],
        "floor_untrained": tables(config, init_state(config, dataset, seed), dataset),
        "floor_random": random,
        "floor_constant": [np.ones((len(truth.visited), d))],
    }
    scores = {
        name: float(np.mean([fit.strict_cosine(table, truth) for table in reference]))
        for name, reference in references.items()
    }
    solved = fit.cosine(true_table(truth, min(d, truth.eigenvectors.shape[1])), truth).mean()
    assert abs(solved - 1) < 1e-9, f"the truth scores {solved} under its own metric"
    return scores


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
        scores["ceiling_paper"] = float(fit.cosine(table, truth.policy).mean())
    return scores


def _held_out_scores(
    config: AlloConfig,
    learned: Float[np.ndarray, "seeds states d"],
    truth: Spectrum,
    dataset: Dataset,
) -> dict[str, float]:
    """Returns `held_out_cosine`, of training truth with held-out truth, and `held_out_graph`.

    `held_out_graph` is the sum of Rayleigh quotients on held-out data.
    """
    if not (is_counted(dataset) and len(dataset.held_out.starts)):
        return {}
    held_out = held_out_spectrum(config, dataset)
    cosines = fit.strict_cosine(true_table(truth, config.network.d), held_out.spectrum)
    quotients = [fit.rayleigh(table, held_out.operator).sum() for table in learned]
    return {"held_out_cosine": float(cosines.mean()), "held_out_graph": float(np.mean(quotients))}
