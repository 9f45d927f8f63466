"""state, values of its steps -> metrics by name, or an error if learning diverged."""

import warnings

import numpy as np
from jaxtyping import Float

from quatrain.models.allo.collect import AnyDataset
from quatrain.models.allo.config import AlloConfig
from quatrain.models.allo.learning.spectra import fit
from quatrain.models.allo.learning.spectra.spectrum import Spectrum
from quatrain.models.allo.learning.spectra.truth import Truth
from quatrain.models.allo.learning.state import State, schedule, tables
from quatrain.progress import TrainingDiverged

# The key of allo.train to lower if this is the first value that is not finite.
REMEDY = {
    "graph": "learning_rate",
    "dual": "lr_dual",
    "barrier_term": "lr_barrier",
    "grad_norm": "learning_rate",
}


def metrics(
    config: AlloConfig,
    state: State,
    recorded: dict[str, np.ndarray],
) -> dict[str, np.ndarray]:
    """Returns name -> (1, seeds) + the metric's own axes."""
    duals = np.asarray(state.duals)
    diagonal = np.diagonal(duals, axis1=1, axis2=2)
    means = {name: steps.mean(-1, dtype=np.float64) for name, steps in recorded.items()}
    values = means | {
        "duals_diag": diagonal,
        "dual_offdiag_max": np.abs(np.tril(duals, -1)).max((1, 2)),
        "barrier": np.asarray(state.barrier),
        "eigenvalue_dual": dual_eigenvalues(config, state),
        "lr": np.full(config.seeds, float(schedule(config.train)(int(state.step[0]) - 1))),
    }
    return {name: value[None] for name, value in values.items()}


def dual_eigenvalues(config: AlloConfig, state: State) -> Float[np.ndarray, "seeds d"]:
    """Computes −β_ii / (4κ), which is λ_i at the fixed point.

    Before it, and with a learning rate that ends too soon, the barrier carries a share, which
    `corrected_eigenvalues` adds. The Rayleigh quotient of the learned vector does not depend on how
    they share, and is the estimate to use.
    """
    diagonal = np.diagonal(np.asarray(state.duals), axis1=1, axis2=2)
    return -diagonal / (4 * config.train.graph_coef)


def corrected_eigenvalues(
    config: AlloConfig,
    state: State,
    learned: Float[np.ndarray, "seeds states d"],
    truth: Spectrum,
) -> Float[np.ndarray, "seeds d"]:
    """Computes −(β_ii + 2 b E_ii) / (4κ): what dual and barrier hold together.

    At a stationary point 4κλ_i + β_ii + 2 b E_ii = 0 with E_ii = φ_iᵀRφ_i − 1 over the whole
    buffer, so this is λ_i before the dual has taken over the barrier's share, too.
    """
    squares = np.square(np.asarray(learned, np.float64)[:, truth.visited])
    error = np.einsum("s,nsd->nd", truth.starts, squares) - 1
    share = np.asarray(state.barrier)[:, None] * error / (2 * config.train.graph_coef)
    return dual_eigenvalues(config, state) - share


def comparison(
    config: AlloConfig,
    state: State,
    dataset: AnyDataset,
    truth: Truth,
) -> dict[str, np.ndarray]:
    """Returns the comparison with the truth: (1, seeds, ...), or (0, seeds, ...) if not due."""
    cosines = eigenvalues = np.zeros((0, config.seeds, config.network.d))
    if int(state.step[0]) % config.train.evaluate_every == 0:
        learned = tables(config, state, dataset)
        cosines = np.stack([fit.strict_cosine(table, truth.spectrum) for table in learned])[None]
        eigenvalues = np.stack([fit.rayleigh(table, truth.operator) for table in learned])[None]
    return {
        "eigenvalue": eigenvalues,
        "cosine": cosines,
        "cosine_mean": cosines.mean(-1),
        "cosine_min": cosines.min(-1),
    }


def check_finite(recorded: dict[str, np.ndarray], start: int, barrier: float) -> None:
    """Raises for the first step with a value that is not finite; names the first in REMEDY."""
    broken = np.stack([~np.isfinite(recorded[name]).all(0) for name in REMEDY])
    if not broken.any():
        return
    first = int(broken.any(0).argmax())
    term = list(REMEDY)[int(broken[:, first].argmax())]
    labels = {"barrier_term": "barrier term", "grad_norm": "gradient"}
    raise TrainingDiverged(
        f"allo step {start + first + 1:,}: {labels.get(term, f'{term} term')} is not finite "
        f"(b={barrier:.3g}); lower allo.train.{REMEDY[term]}"
    )


def warn_if_errors_grew(errors: list[float]) -> None:
    tenth = len(errors) // 10
    if tenth and np.mean(errors[-tenth:]) > 1.5 * np.mean(errors[-2 * tenth : -tenth]):
        warnings.warn(
            "allo: total_error grew by more than half over the last tenth of the steps; "
            "lower allo.train.learning_rate",
            stacklevel=2,
        )
