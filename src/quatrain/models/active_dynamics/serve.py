"""state -> arrays for inference; states -> the learned field there, and its uncertainty."""

from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from quatrain.frameworks.torch import from_template, to_arrays
from quatrain.models.active_dynamics.config import (
    LARGEST,
    ActiveDynamicsConfig,
    ActiveDynamicsUserEnvConfig,
)
from quatrain.models.active_dynamics.family import AffineAlignment, FieldPosterior
from quatrain.models.active_dynamics.state import TrainingState, family_of, learners_of
from quatrain.models.active_dynamics.user_env import serve as user_env
from quatrain.serving import Input, Served

INPUT = "states"
EXAMPLES = 3


class ServedField(NamedTuple):
    """Holds the field of one learner, and the map from its latent states to true ones.

    field, covariance: those of `FieldPosterior`. matrix, offset: those of `AffineAlignment`.
    """

    field: dict[str, Tensor]
    covariance: Float[Tensor, "*output feature feature"]
    matrix: Float64[Tensor, "d d"]
    offset: Float64[Tensor, " d"]


def export(config: ActiveDynamicsConfig, state: Any, dataset: Any) -> dict[str, np.ndarray]:
    """Returns the field of the first replicate of the active arm, else of the first arm.

    If channels are learned, the field has latent coordinates; the true channels or the held-out
    states align them.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return user_env.export(config, state)
    learner = TrainingState(config, dataset, state).learner
    arms = config.train.arms
    index = learners_of(config, "active" if "active" in arms else arms[0]).start
    matrix, offset = learner.alignment(learner.weights, dataset.held_out)
    served = ServedField(*learner.export_posterior(index), matrix[index], offset[index])
    return to_arrays(served)


def request(config: ActiveDynamicsConfig, dataset: Any) -> dict[str, np.ndarray]:
    if config.brings_env:
        return user_env.request(dataset)
    return {INPUT: dataset.held_out.starts[:EXAMPLES].copy()}


def load(config: ActiveDynamicsConfig, arrays: dict[str, np.ndarray]) -> Served:
    """Returns what computes the learned field at some states, without actions, and its uncertainty.

    Input: `states` (n, d), in the coordinates of the true system. The field is learned within
    `env.region_radius` of 0; its uncertainty grows with the distance from there.
    Outputs (n, d): `velocity`, the change of each coordinate per unit of time; `deviation`, its
    standard deviation by the posterior of the weights (by the members of an ensemble).
    A user's system has the inputs `states` (n, obs) and `actions` (n, action), in its own units,
    and the velocity is that under these actions.

    Raises:
        ValueError: the arrays are of another config.
    """
    if config.brings_env:
        return user_env.load(arrays)
    d = config.env.d
    empty: FieldPosterior = family_of(config).posterior_template(config)
    template = ServedField(*empty, torch.zeros(d, d).double(), torch.zeros(d).double())
    served = from_template(template, arrays)
    posterior = FieldPosterior(served.field, served.covariance)
    moments_at = family_of(config).posterior_moments(config, posterior)
    alignment = AffineAlignment(served.matrix[None], served.offset[None])
    inverse = torch.linalg.pinv(served.matrix).mT

    @torch.inference_mode()
    def compute(question: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        latent = (torch.as_tensor(question[INPUT]) - served.offset) @ inverse
        field = alignment.to_field(moments_at(latent[None]))
        return {
            "velocity": field.mean[0].numpy(force=True),
            "deviation": field.variance.clamp(min=0).sqrt()[0].numpy(force=True),
        }

    return Served({INPUT: Input(np.float64, (d,), -LARGEST, LARGEST)}, compute)
