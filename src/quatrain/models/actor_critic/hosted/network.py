"""observations -> raw parameters of a distribution over actions, and values"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.host.spaces import Interface
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.network import GraphNetwork, Shape
from quatrain.replay.rollouts.buffer import Graphs

CLIP = 10.0  # standard deviations at which observations are clipped
SMALLEST_VARIANCE = 1e-8


class ArrayNetwork(GraphNetwork):
    """Scales observations, which are the features of a graph without cells, by their mean and
    deviation; the weights of a policy hold them, because they mean nothing without.
    """

    obs_mean: Tensor
    obs_variance: Tensor
    obs_count: Tensor

    def __init__(self, shape: Shape, clip: float = CLIP) -> None:
        super().__init__(shape)
        self.clip = clip
        self.register_buffer("obs_mean", torch.zeros(shape.inputs))
        self.register_buffer("obs_variance", torch.ones(shape.inputs))
        self.register_buffer("obs_count", torch.zeros(()))

    def encode(self, graphs: Graphs) -> Float[Tensor, "batch obs"]:
        deviation = (self.obs_variance + SMALLEST_VARIANCE).sqrt()
        return ((graphs.graph - self.obs_mean) / deviation).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def measure(self, obs: Float[Tensor, "transitions obs"]) -> None:
        """Adds observations to mean and variance, in place.

        Chan, Golub and LeVeque, 'Updating Formulae and a Pairwise Algorithm for Computing Sample
        Variances' (1979), eq. 2.1.
        """
        count = self.obs_count + len(obs)
        share = len(obs) / count
        difference = obs.mean(0) - self.obs_mean
        variance = torch.lerp(self.obs_variance, obs.var(0, correction=0), share)
        self.obs_variance.copy_(variance + share * (1 - share) * difference.square())
        self.obs_mean.add_(share * difference)
        self.obs_count.copy_(count)


def make(config: HostedActorCriticConfig, space: Interface) -> ArrayNetwork:
    """Returns a network with weights from torch's global generator."""
    return ArrayNetwork(
        Shape(
            inputs=space.observation_size,
            d=config.network.d,
            layers=config.network.layers,
            raw=space.action_count or 2 * len(space.action_low),
            values=(),
        ),
        math.inf if config.network.observation_scale == "none" else CLIP,
    )
