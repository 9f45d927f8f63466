"""numbers -> numbers: several small networks side by side, with tanh between their layers

Axes: network, number, sample. Samples come last: where a layer has but two inputs or outputs, a product takes a tenth
of what it takes with samples first.
"""

import math
from itertools import pairwise
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad


class Layers(NamedTuple):
    """Weights and biases; a single layer is linear."""

    weights: tuple[Float[Tensor, "lead outputs inputs"], ...]
    biases: tuple[Float[Tensor, "lead outputs 1"], ...]

    @property
    def lead(self) -> int:
        """How many networks these are."""
        return len(self.weights[0])

    def __call__(self, x: Float[Tensor, "lead inputs n"]) -> Float[Tensor, "lead outputs n"]:
        return torch.baddbmm(self.biases[-1], self.weights[-1], self.hidden(x))

    def features(self, x: Float[Tensor, "lead inputs n"]) -> Float[Tensor, "lead feature n"]:
        """What the outputs are linear in: the last hidden layer, and a constant 1 for the bias."""
        return pad(self.hidden(x), (0, 0, 0, 1), value=1.0)

    def hidden(self, x: Float[Tensor, "lead inputs n"]) -> Float[Tensor, "lead unit n"]:
        """The last hidden layer; without one the inputs."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.baddbmm(bias, weight, x).tanh_()
        return x

    def of_features(
        self, features: Float[Tensor, "lead feature n"]
    ) -> Float[Tensor, "lead outputs n"]:
        """What the last layer makes of features."""
        return torch.cat([self.weights[-1], self.biases[-1]], 2) @ features

    def jacobian(self, x: Float[Tensor, "lead inputs n"]) -> Float[Tensor, "lead n outputs inputs"]:
        """∂output_i/∂input_j."""
        slope = torch.eye(x.shape[1], dtype=x.dtype, device=x.device).expand(
            self.lead, x.shape[2], -1, -1
        )
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.baddbmm(bias, weight, x).tanh()
            slope = (1 - x.square()).mT[..., None] * (weight[:, None] @ slope)
        return self.weights[-1][:, None] @ slope

    def for_many(self) -> "SigmoidLayers":
        """The same for many samples: W h + b = 2W σ + (b - W 1), and twice that before a further σ."""
        folded, last = [], len(self.weights) - 1
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if place > 0:
                weight, bias = 2 * weight, bias - weight.sum(2, keepdim=True)
            folded.append(Affine(weight, bias) if place == last else Affine(2 * weight, 2 * bias))
        return SigmoidLayers(tuple(folded))


class Affine(NamedTuple):
    """A layer before its nonlinearity."""

    weight: Float[Tensor, "lead outputs inputs"]
    bias: Float[Tensor, "lead outputs 1"]


class SigmoidLayers(NamedTuple):
    """Layers with σ(2u) = (1 + tanh(u))/2 in the place of tanh, which takes five times as long."""

    affine: tuple[Affine, ...]

    def __call__(self, x: Float[Tensor, "lead inputs n"]) -> Float[Tensor, "lead outputs n"]:
        for weight, bias in self.affine[:-1]:
            x = torch.baddbmm(bias, weight, x).sigmoid_()
        weight, bias = self.affine[-1]
        return torch.baddbmm(bias, weight, x)


class LayerParameters(nn.Module):
    """What is learned of `Layers`: uniform within 1/√inputs at first."""

    def __init__(self, lead: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        pairs = list(pairwise(sizes))
        self.weights = nn.ParameterList(
            _uniform(inputs, lead, outputs, inputs) for inputs, outputs in pairs
        )
        self.biases = nn.ParameterList(
            _uniform(inputs, lead, outputs, 1) for inputs, outputs in pairs
        )
        self.held = (
            tuple(self.weights),
            tuple(self.biases),
        )  # a ParameterList is slow to go through

    def now(self) -> Layers:
        """As they are now."""
        return Layers(*self.held)


def _uniform(inputs: int, *shape: int) -> nn.Parameter:
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
