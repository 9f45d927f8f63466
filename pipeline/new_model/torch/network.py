"""points -> values: a network with one hidden layer, of several learners at once."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Generator, Tensor

from quatrain.models.sketch.collect import INPUTS
from quatrain.models.sketch.config import SketchConfig

# Name -> weights, whose first axis is the seed.
Params = dict[str, Tensor]


def shapes(config: SketchConfig) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each array of weights."""
    seeds = config.seeds
    hidden = config.network.hidden
    return {
        "hidden_weight": (seeds, INPUTS, hidden),
        "hidden_bias": (seeds, hidden),
        "output_weight": (seeds, hidden),
        "output_bias": (seeds,),
    }


def init(config: SketchConfig, generator: Generator) -> Params:
    """Draws weights; hidden units bend at different places, and outputs are small."""
    scales = {"hidden_weight": 1.0, "hidden_bias": 1.0, "output_weight": 0.01, "output_bias": 0.01}
    return {
        name: scales[name] * torch.randn(shape, generator=generator)
        for name, shape in shapes(config).items()
    }


def apply(
    params: Params, inputs: Float[Tensor, "#seed sample input"]
) -> Float[Tensor, "seed sample"]:
    """Computes w · tanh(V x + a) + b."""
    hidden = torch.tanh(inputs @ params["hidden_weight"] + params["hidden_bias"][:, None])
    values = torch.einsum("snh,sh->sn", hidden, params["output_weight"])
    return values + params["output_bias"][:, None]


def predict(
    params: Mapping[str, Any], inputs: Float[np.ndarray, "sample input"]
) -> Float[np.ndarray, "seed sample"]:
    """Computes `apply` of the same points for all learners, as a numpy array."""
    device = torch.get_default_device()
    tensors = {name: torch.as_tensor(values, device=device) for name, values in params.items()}
    with torch.no_grad():
        return apply(tensors, torch.tensor(inputs)[None]).numpy(force=True)
