"""What tests of vector fields share: short ways to a field, an emission and a world of them."""

from typing import Any

import numpy as np
import torch

from quatrain.envs.vector_field.config import Env, FieldChoice, Observation
from quatrain.envs.vector_field.fields import Field, make_field
from quatrain.envs.vector_field.world import World, draw_emission, make_world
from quatrain.section import InputArrays, NamedArray
from tests.conftest import params_with
from tests.torch_numbers import seeded

SIX = ("limit_cycle", "double_limit_cycle", "van_der_pol", "duffing", "snowman", "multi_attractor")
STILL = ((0.0, 0.0), (0.0, 0.0))
"""A of a linear field that moves nothing."""


def field_env(kind: str = "limit_cycle", **changes: Any) -> Env:
    """Returns an environment with an unscaled field; changes: of it or of its field, unchecked."""
    env = params_with({}).active_dynamics.env
    plain = {"kind": kind, "normalise": "none"}
    plain |= {name: changes.pop(name) for name in FieldChoice.model_fields if name in changes}
    return env.model_copy(update={"field": env.field.model_copy(update=plain), **changes})


def raw_field(kind: str, **changes: Any) -> Field:
    return make_field(field_env(kind, **changes), seeded(0))


LEAVING = {"kind": "linear", "matrix": ((0.0, 0.0), (0.0, 5.0))}
"""Along the second axis rows soon leave the box."""


def world_of(observation: Observation | None = None, **changes: Any) -> World:
    """Returns a world with a limit cycle, a large box and 7 linear channels, but for the
    changes.
    """
    env, generator = field_env(**changes), seeded(0)
    drawn = draw_emission(observation or gaussian(), env.d, generator)
    return make_world(env, make_field(env, generator), drawn)


def gaussian(kind: Any = "linear", channels: int = 7, **changes: Any) -> Observation:
    plain = {"noise": "gaussian", "noise_sd": 0.1, "weight_sd": 0.5, "bias_sd": 0.1}
    return Observation.model_construct(kind=kind, channels=channels, **plain | changes)


def poisson(channels: int = 7) -> Observation:
    return gaussian("loglinear", channels, noise="poisson")


def wind(axes: Any = None, vectors: Any = None) -> InputArrays:
    """Returns a table of 3 x 5 nodes on two different axes, each with another vector."""
    axes = [np.linspace(-2, 2, 3), np.linspace(-2, 6, 5)] if axes is None else axes
    shape = (*map(len, axes), 2)
    vectors = np.arange(np.prod(shape)).reshape(shape) ** 2.0 if vectors is None else vectors
    arrays = {"axis_0": axes[0], "axis_1": axes[1], "vectors": vectors}
    return InputArrays(
        name="wind.npz",
        arrays=tuple(
            NamedArray(name=name, shape=array.shape, numbers=tuple(array.ravel().tolist()))
            for name, array in arrays.items()
        ),
    )


def points(*shape: int, seed: int = 1, reach: float = 2.0) -> torch.Tensor:
    """Draws points uniformly in a box."""
    return reach * (2 * torch.rand(*shape, generator=seeded(seed)) - 1)
