"""learners, held-out pairs -> what tells, without any truth, how good their vectors are

The eigenvectors are the d orthonormal functions that change least along a walk. So held-out pairs
judge them: how much of a function is kept from a state to a later one, whether the functions
differ, and whether other seeds find the same. Everything here is float64 NumPy but the features.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Float64, Int

from quatrain.models.allo import network
from quatrain.models.allo.collect import Dataset
from quatrain.models.allo.config import AlloConfig
from quatrain.replay.episodes.lags import AnyArray
from quatrain.replay.episodes.trajectories import sample

PAIRS = 20_000
# Variance of a direction, relative to the largest, below which components are not independent.
DEPENDENT = 1e-6

Features = Float[np.ndarray, "learner pair d"]
Measured = dict[str, Float64[np.ndarray, "learner *component"]]


class Pairs(NamedTuple):
    """Holds the numbers of held-out states and of later ones, and the encoder's inputs at both."""

    states: Int[np.ndarray, " pair"]
    later_states: Int[np.ndarray, " pair"]
    inputs: Float[AnyArray, "both inputs"]


def draw(
    config: AlloConfig, dataset: Dataset, inputs: Float[AnyArray, "states inputs"], seed: int
) -> Pairs:
    """Draws pairs of the held-out walks by the law of the training."""
    episodes = jax.tree.map(jnp.asarray, dataset.held_out)
    batch = sample(jax.random.key(seed), episodes, PAIRS, config.train.discounts, 0)
    states, later = np.asarray(batch.state), np.asarray(batch.later_state)
    return Pairs(states, later, inputs[np.concatenate([states, later])])


def features(config: AlloConfig, params: network.Params, pairs: Pairs) -> tuple[Features, Features]:
    """Returns what each learner has at the states and at the later ones."""
    both = np.asarray(network.of_learners(config, params, pairs.inputs), np.float64)
    return both[:, :PAIRS], both[:, PAIRS:]


def measure(start: Features, later: Features) -> Measured:
    """Returns measures of each learner.

    `held_out_eigenvalue` is the Rayleigh quotient of each component, mean (φ − φ')² / 2 mean φ².
    `held_out_orthogonality` is the greatest |ΦᵀΦ/n − I|. `autocorrelation` is the mean of 1 − λ
    over the span of the components without the constant: 1 for functions that never change, 0
    where later states have nothing to do with the first, or all components are the constant.
    `consistency` is the mean cosine of the principal angles between the span of a learner and those
    of the others, without the smallest, the constant's; absent of a single learner.

    Source: 'Variational cross-validation of slow dynamical modes' (2015), whose generalised matrix
    Rayleigh quotient is the sum of 1 − λ.
    """
    learners, size, d = start.shape
    gram = np.swapaxes(start, 1, 2) @ start / size
    change = later - start
    laplacian = np.swapaxes(change, 1, 2) @ change / (2 * size)
    squares, changes = (np.diagonal(each, axis1=1, axis2=2) for each in (gram, laplacian))
    whitenings = [_whitening(each) for each in gram]
    kept = [
        white.shape[1] - np.trace(white.T @ each @ white)
        for white, each in zip(whitenings, laplacian, strict=True)
    ]
    measured: Measured = {
        "held_out_eigenvalue": changes / np.where(squares > 0, squares, 1),
        "held_out_orthogonality": np.abs(gram - np.eye(d)).max((1, 2)),
        "autocorrelation": (np.array(kept) - 1) / max(d - 1, 1),
    }
    if learners > 1:
        bases = [phi @ white / np.sqrt(size) for phi, white in zip(start, whitenings, strict=True)]
        cosines = np.zeros((learners, learners))
        for pair in np.argwhere(~np.eye(learners, dtype=bool)):
            first, other = (bases[learner] for learner in pair)
            angles = np.linalg.svd(first.T @ other, compute_uv=False)
            cosines[tuple(pair)] = angles[1:].sum() / max(d - 1, 1)
        measured["consistency"] = cosines.sum(1) / (learners - 1)
    return measured


def _whitening(gram: Float64[np.ndarray, "d d"]) -> Float64[np.ndarray, "d rank"]:
    """Returns what makes components orthonormal; those that depend on others are left out."""
    variances, directions = np.linalg.eigh(gram)
    kept = variances > DEPENDENT * max(variances[-1], np.finfo(float).tiny)
    return directions[:, kept] / np.sqrt(variances[kept])
