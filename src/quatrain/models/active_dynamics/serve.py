"""learner -> the arrays that answer without it; states -> the learned field there, and how sure it is."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from quatrain.frameworks.torch import packing
from quatrain.models.active_dynamics.bayes_filter import filter as beliefs
from quatrain.models.active_dynamics.bayes_filter.learner import FilterRows
from quatrain.models.active_dynamics.collect import Dataset
from quatrain.models.active_dynamics.config import LARGEST, ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Gauge, Moments
from quatrain.models.active_dynamics.network import make_rbf
from quatrain.models.active_dynamics.seq_vae.dynamics import Dynamics
from quatrain.models.active_dynamics.seq_vae.learner import VaeRows
from quatrain.models.active_dynamics.seq_vae.planning import LearnerFields
from quatrain.models.active_dynamics.state import restored, rows_of
from quatrain.models.active_dynamics.train import State
from quatrain.requests import Input, validate_request

INPUT = "states"
EXAMPLES = 3


class Knowledge(NamedTuple):
    """What a row knows of the field: what it is made of, how uncertain the weights are, how its states are to be read.

    covariance: of the weights of each output; of a network the same for all, and of an ensemble without any feature.
    """

    field: dict[str, Tensor]
    covariance: Float[Tensor, "*output feature feature"]
    turn: Float64[Tensor, "d d"]
    shift: Float64[Tensor, " d"]


def export(config: ActiveDynamicsConfig, state: State, dataset: Dataset) -> dict[str, np.ndarray]:
    """The field of the first replicate of the active arm (of the first arm, where none is active).

    Where channels are learned a field has coordinates of its own, which the true channels or the held-out states tell.
    """
    rows = restored(config, dataset, state).rows
    row = rows_of(config, "active" if "active" in config.train.arms else config.train.arms[0]).start
    gauge = rows.gauge(rows.weights, dataset.held_out)
    if isinstance(rows, FilterRows):
        held, blocks = (
            beliefs.weights(config.env.d, rows.belief),
            beliefs.weight_blocks(config.env.d, rows.belief),
        )
        field, covariance = {"weight": held[row]}, blocks[row]
    else:
        assert isinstance(rows, VaeRows)
        worker = rows.trainers[row]
        field, covariance = (
            dict(worker.network.dynamics.named_parameters()),
            worker.posterior.covariance,
        )
    return packing.to_arrays(Knowledge(field, covariance, gauge.turn[row], gauge.shift[row]))


def request(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, np.ndarray]:
    """The first states from which held-out rollouts begin."""
    return {INPUT: dataset.held_out.starts[:EXAMPLES].copy()}


def answer(
    config: ActiveDynamicsConfig, arrays: dict[str, np.ndarray], request: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Where states flow to by themselves, without actions, and how sure that is.

    Input: `states` (n, d), in the coordinates of the true system; learned of are those within `env.region_radius` of 0,
    and the farther one is from them, the less is known.
    Outputs (n, d): `velocity`, by which each coordinate changes per unit of time; `deviation`, the standard deviation
    of that by all that was seen (of an ensemble, how far its members lie apart).

    Raises:
        ValueError: other inputs, shapes or numbers than these; arrays of another config.
    """
    wanted = {INPUT: Input(np.float64, (config.env.d,), -LARGEST, LARGEST)}
    states = torch.tensor(validate_request("active_dynamics", request, wanted)[INPUT])[None]
    with torch.no_grad():
        known = packing.from_arrays(_template(config), arrays)
        gauge = Gauge(known.turn[None], known.shift[None])
        moments = _of_filter if config.network.family == "bayes_filter" else _of_network
        found = moments(config, known, gauge.inward(states))
        velocity, deviation = (
            gauge.velocity(found.mean),
            gauge.spread(found.variance).clamp(min=0).sqrt(),
        )
    return {"velocity": velocity[0].numpy(force=True), "deviation": deviation[0].numpy(force=True)}


def _of_filter(
    config: ActiveDynamicsConfig, known: Knowledge, z: Float64[Tensor, "1 point d"]
) -> Moments:
    """W φ(z), and φᵀ P_ww,ii φ."""
    features = make_rbf(config.network.rbf, config.env.d).to(torch.float64).features(z)
    variance = torch.einsum("rpc,idc,rpd->rpi", features, known.covariance, features)
    return Moments(features @ known.field["weight"].mT, variance)


def _of_network(
    config: ActiveDynamicsConfig, known: Knowledge, z: Float64[Tensor, "1 point d"]
) -> Moments:
    """The mean field; its variance is that of the last layer's weights, or of an ensemble's members."""
    dynamics = _dynamics(config)
    dynamics.load_state_dict(known.field)
    fields, x = LearnerFields(dynamics.field(), config.network.seq_vae.members), z.float()
    felt = fields.mean_and_features(x)
    if fields.members > 1:
        variance = fields.member_values(x).var(2, correction=0)
    else:
        variance = (
            ((felt.features @ known.covariance) * felt.features)
            .sum(-1, keepdim=True)
            .expand_as(felt.value)
        )
    return Moments(felt.value.double(), variance.double())


def _dynamics(config: ActiveDynamicsConfig) -> Dynamics:
    """With weights that are to be replaced."""
    chosen, d = config.network.seq_vae, config.env.d
    with torch.random.fork_rng():
        return Dynamics(
            chosen, d, make_rbf(config.network.rbf, d) if chosen.dynamics == "rbf" else None
        )


def _template(config: ActiveDynamicsConfig) -> Knowledge:
    """What of knowledge has the right names, shapes and types."""
    d = config.env.d
    turn, shift = torch.zeros(d, d).double(), torch.zeros(d).double()
    if config.network.family == "bayes_filter":
        size = make_rbf(config.network.rbf, d).size
        weight, covariance = torch.zeros(d, size).double(), torch.zeros(d, size, size).double()
        return Knowledge({"weight": weight}, covariance, turn, shift)
    dynamics = _dynamics(config)
    fields = LearnerFields(dynamics.field(), config.network.seq_vae.members)
    size = fields.mean_and_features(torch.zeros(1, 1, d)).features.shape[2]
    return Knowledge(dynamics.state_dict(), torch.zeros(size, size), turn, shift)
