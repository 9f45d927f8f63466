"""samples -> outputs of several small MLPs of one shape side by side, with tanh between layers

Axes: network, number, sample. Samples come last: where a layer has only two inputs or outputs, the
product takes a tenth of the time it takes with samples first.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad


class StackedMlp(NamedTuple):
    """Holds the weights and biases of all networks by layer; a single layer is linear."""

    weights: tuple[Float[Tensor, "network outputs inputs"], ...]
    biases: tuple[Float[Tensor, "network outputs 1"], ...]

    @classmethod
    def concatenate(cls, mlps: Sequence[Any]) -> "StackedMlp":
        weights = zip(*(mlp.weights for mlp in mlps), strict=True)
        biases = zip(*(mlp.biases for mlp in mlps), strict=True)
        return cls(tuple(map(torch.cat, weights)), tuple(map(torch.cat, biases)))

    @property
    def networks(self) -> int:
        return len(self.weights[0])

    def __call__(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network outputs n"]:
        return torch.baddbmm(self.biases[-1], self.weights[-1], self.hidden(x))

    def features(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network feature n"]:
        """Returns the features that outputs are linear in: the last hidden layer and a 1."""
        return pad(self.hidden(x), (0, 0, 0, 1), value=1.0)

    def hidden(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network unit n"]:
        """Returns the last hidden layer; the inputs, if there is none."""
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.baddbmm(bias, weight, x).tanh_()
        return x

    def from_features(
        self, features: Float[Tensor, "network feature n"]
    ) -> Float[Tensor, "network outputs n"]:
        return torch.cat([self.weights[-1], self.biases[-1]], 2) @ features

    def jacobian(
        self, x: Float[Tensor, "network inputs n"]
    ) -> Float[Tensor, "network n outputs inputs"]:
        """Computes ∂output_i/∂input_j."""
        identity = torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        slope = identity.expand(self.networks, x.shape[2], -1, -1)
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = torch.baddbmm(bias, weight, x).tanh()
            slope = (1 - x.square()).mT[..., None] * (weight[:, None] @ slope)
        return self.weights[-1][:, None] @ slope

    def for_large_batches(self) -> "SigmoidMlp":
        """Returns the same function with σ(2u) = (1 + tanh(u))/2 in the place of tanh.

        With σ of the layer before, W tanh + b = 2W σ + (b - W 1); twice that before a further σ.
        """
        first, *others = zip(self.weights, self.biases, strict=True)
        after_sigmoid = [
            (2 * weight, bias - weight.sum(2, keepdim=True)) for weight, bias in others
        ]
        *inner, last = [first, *after_sigmoid]
        return SigmoidMlp((*((2 * weight, 2 * bias) for weight, bias in inner), last))


class SigmoidMlp(NamedTuple):
    """Holds networks with sigmoids between their layers; tanh takes five times as long.

    layers: weight [network, outputs, inputs] and bias [network, outputs, 1] of each.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    def __call__(self, x: Float[Tensor, "network inputs n"]) -> Float[Tensor, "network outputs n"]:
        *hidden, (last_weight, last_bias) = self.layers
        for weight, bias in hidden:
            x = torch.baddbmm(bias, weight, x).sigmoid_()
        return torch.baddbmm(last_bias, last_weight, x)


class MlpParameters(nn.Module):
    """Holds the parameters of a `StackedMlp`, initially uniform within 1/√inputs."""

    def __init__(self, networks: int, sizes: tuple[int, ...]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(
            _uniform(inputs, networks, outputs, inputs) for inputs, outputs in pairwise(sizes)
        )
        self.biases = nn.ParameterList(
            _uniform(inputs, networks, outputs, 1) for inputs, outputs in pairwise(sizes)
        )
        # Kept as tuples too, because iterating over a ParameterList is slow.
        self.parameter_tuples = (tuple(self.weights), tuple(self.biases))

    def mlp(self) -> StackedMlp:
        return StackedMlp(*self.parameter_tuples)


def _uniform(inputs: int, *shape: int) -> nn.Parameter:
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
