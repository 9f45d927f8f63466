"""What tests of vector fields share: short ways to a field, an emission and a world of them."""

from typing import Any

import numpy as np
import torch

from quatrain.envs.vector_field.fields import Field, make_field
from quatrain.envs.vector_field.kinds import EmissionSpec, FieldSpec, Table, WorldSpec
from quatrain.envs.vector_field.observation import draw_emission
from quatrain.envs.vector_field.world import World, make_world
from tests.torch_numbers import seeded

SIX = ("limit_cycle", "double_limit_cycle", "van_der_pol", "duffing", "snowman", "multi_attractor")
STILL = ((0.0, 0.0), (0.0, 0.0))
"""A of a linear field that moves nothing."""


def field_spec(kind: str = "limit_cycle", **changes: Any) -> FieldSpec:
    """Returns the spec of an unscaled field."""
    plain = FieldSpec(kind, (), None, None, normalise="none", speed=1.0, region_radius=1.5)
    return plain._replace(**changes)


def raw_field(kind: str, **changes: Any) -> Field:
    return make_field(field_spec(kind, **changes), seeded(0))


LEAVING = field_spec("linear", matrix=((0.0, 0.0), (0.0, 5.0)))
"""Along the second axis rows soon leave the box."""


def world_of(
    field: FieldSpec | None = None, emission: EmissionSpec | None = None, **changes: Any
) -> World:
    """Returns a world with a limit cycle, a large box and 7 linear channels, but for the
    changes.
    """
    field, generator = field or field_spec(), seeded(0)
    spec = WorldSpec(
        field,
        dt=0.1,
        process_noise=0.01,
        control=None,
        action_bound=1.0,
        escape_radius=3.0,
        episode_transitions=None,
    )
    drawn = draw_emission(emission or gaussian(), field.d, generator)
    return make_world(spec._replace(**changes), make_field(field, generator), drawn)


def gaussian(kind: Any = "linear", channels: int = 7) -> EmissionSpec:
    return EmissionSpec(kind, channels, noise="gaussian", noise_sd=0.1, weight_sd=0.5, bias_sd=0.1)


def poisson(channels: int = 7) -> EmissionSpec:
    return EmissionSpec(
        "loglinear", channels, noise="poisson", noise_sd=0.1, weight_sd=0.5, bias_sd=0.1
    )


def wind(axes: Any = None, vectors: Any = None) -> Table:
    """Returns a table of 3 x 5 nodes on two different axes, each with another vector."""
    axes = [np.linspace(-2, 2, 3), np.linspace(-2, 6, 5)] if axes is None else axes
    shape = (*map(len, axes), 2)
    vectors = np.arange(np.prod(shape)).reshape(shape) ** 2.0 if vectors is None else vectors
    axes = tuple(tuple(np.asarray(axis).tolist()) for axis in axes)
    return Table("wind.npz", axes, tuple(map(tuple, vectors.tolist())))


def points(*shape: int, seed: int = 1, reach: float = 2.0) -> torch.Tensor:
    """Draws points uniformly in a box."""
    return reach * (2 * torch.rand(*shape, generator=seeded(seed)) - 1)
