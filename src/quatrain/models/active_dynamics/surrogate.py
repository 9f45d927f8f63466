"""What a planner sees of each row's learner, whichever family it is of."""

from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

from quatrain.models.active_dynamics.config import Acquisition

OF_ALL_WEIGHTS = ("fisher_d", "fisher_a")
"""Values that ask for the covariance of all outputs' weights together."""


class Felt(NamedTuple):
    """The mean field at some states, and the features whose weights are uncertain."""

    value: Float[Tensor, "row n d"]
    features: Float[Tensor, "row n feature"]


class Surrogate(NamedTuple):
    """The beliefs of all rows, in single precision.

    control: B of u = B a. field, jacobian (J_ij = ∂f_i/∂x_j), members (of an ensemble): functions of states
    [row, n, d]. covariance: Σ, the mean over outputs of the blocks P_ww,ii. full_covariance: P_ww, weight (i, c) at
    i·C + c. region: Γ, the mean of φφᵀ over the region of interest. step_variance: of x_{t+1} - x_t as it is seen, the
    noise of a step and that of the states (Q dt + mean diag Λ⁻¹; mean(s dt + 2v)). precision:
    Λ = Hᵀ R⁻¹ H where the state is. What a family does not have is None.
    """

    state: Float[Tensor, "row d"]
    control: Float[Tensor, "d action"]
    dt: float
    region_radius: float
    field: Callable[[Tensor], Felt]
    jacobian: Callable[[Tensor], Tensor]
    members: Callable[[Tensor], Tensor] | None
    covariance: Float[Tensor, "row feature feature"] | None
    full_covariance: Float[Tensor, "row weight weight"] | None
    region: Float[Tensor, "*row feature feature"] | None
    step_variance: Float[Tensor, " row"]
    precision: Float[Tensor, "row d d"]


def asks_for_all(config: Acquisition) -> bool:
    """Whether anything asks for `full_covariance`."""
    return any(config.weights.get(name, 0) > 0 for name in OF_ALL_WEIGHTS)
