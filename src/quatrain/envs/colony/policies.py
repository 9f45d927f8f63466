"""colonies -> actions without learning: random, constant, and a hand-written feedback
controller.
"""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from quatrain.envs.colony.config import Env
from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.rules import PARAMETERS

Actions = Float[Tensor, "env 5"]
# Positions of colonies in the initial batch, and their states -> their actions.
ColonyPolicy = Callable[[Int64[Tensor, " env"], Colonies], Actions]
# Radians per pixel off the middle.
GAIN = 0.02
# Cells that are added before rounding down, so that exactly the intended number is deleted.
SMALLEST = 0.5


def action_bounds(rules: Env) -> tuple[Float[Tensor, "5"], Float[Tensor, "5"]]:
    low, high = torch.tensor(rules.bounds).T
    return low, high


def fix_parameters(fixed: Mapping[str, float], actions: Actions) -> Actions:
    """Returns a copy of the actions with some of their numbers replaced."""
    actions = actions.clone()
    for name, value in fixed.items():
        actions[:, PARAMETERS.index(name)] = value
    return actions


def with_fixed_parameters(fixed: Mapping[str, float], act: ColonyPolicy) -> ColonyPolicy:
    """Returns the policy with some numbers of its actions replaced."""
    return lambda indices, colonies: fix_parameters(fixed, act(indices, colonies))


def random_policy(rules: Env, generator: Generator) -> ColonyPolicy:
    """Returns a policy that draws uniformly within the bounds."""
    low, high = action_bounds(rules)

    def act(indices: Tensor, _: Colonies) -> Actions:
        return low + (high - low) * torch.rand(len(indices), 5, generator=generator)

    return act


def constant_policy(actions: Float[Tensor, "env 5"]) -> ColonyPolicy:
    """Returns a policy that repeats one action per colony."""
    return lambda indices, _: actions[indices]


def feedback_policy(rules: Env, gamma: Float[Tensor, " env"]) -> ColonyPolicy:
    """Returns a controller that holds the size and the middle of the plate, with one γ per colony.

    r = (n − ⌈Nc/2⌉ + ½)/n and θ = −k (cy − H/2), within bounds. α is lowest and ν is highest, for
    the longest throw.
    """
    ratio, _, alpha, noise, theta = rules.bounds
    survivors = -(-rules.target_nodes // 2)

    def act(indices: Tensor, colonies: Colonies) -> Actions:
        n = colonies.n.clamp(min=1)
        throw = gamma[indices]
        angle = -GAIN * (colonies.centroid[:, 1] - rules.height / 2)
        columns = {
            "delete_ratio": ((n - survivors + SMALLEST) / n).clamp(ratio.low, ratio.high),
            "gamma": throw,
            "alpha": torch.full_like(throw, alpha.low),
            "noise": torch.full_like(throw, noise.high),
            "theta": angle.clamp(theta.low, theta.high),
        }
        return torch.stack([columns[name] for name in PARAMETERS], 1)

    return act


def noisy_policy(rules: Env, act: ColonyPolicy, share: float, generator: Generator) -> ColonyPolicy:
    """Returns the policy with uniform noise of ± `share` of each range, clamped to the bounds."""
    low, high = action_bounds(rules)

    def act_with_noise(indices: Tensor, colonies: Colonies) -> Actions:
        noise = share * (2 * torch.rand(len(indices), 5, generator=generator) - 1)
        return (act(indices, colonies) + noise * (high - low)).clamp(low, high)

    return act_with_noise
