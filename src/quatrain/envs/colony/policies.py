"""colonies -> actions that nobody had to learn: random, constant, and a hand-written feedback controller."""

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Float, Int64
from torch import Generator, Tensor

from quatrain.envs.colony.dynamics import Colonies
from quatrain.envs.colony.rules import PARAMETERS, Rules

Actions = Float[Tensor, "colony 5"]
ColonyPolicy = Callable[[Int64[Tensor, " colony"], Colonies], Actions]
"""Numbers of colonies within the batch that began, and how they stand -> their actions."""
GAIN = 0.02
"""Radians per pixel off the middle."""
SMALLEST = 0.5
"""Cells that are added before rounding down, so that exactly as many go as should."""


def action_bounds(rules: Rules) -> tuple[Float[Tensor, "5"], Float[Tensor, "5"]]:
    """Lowest and highest action."""
    low, high = torch.tensor(rules.bounds).T
    return low, high


def fix_parameters(fixed: Mapping[str, float], actions: Actions) -> Actions:
    """The same actions, with some of their numbers held."""
    held = actions.clone()
    for name, value in fixed.items():
        held[:, PARAMETERS.index(name)] = value
    return held


def with_fixed_parameters(fixed: Mapping[str, float], act: ColonyPolicy) -> ColonyPolicy:
    """The same policy, with some numbers of its actions held."""
    return lambda rows, colonies: fix_parameters(fixed, act(rows, colonies))


def random_policy(rules: Rules, generator: Generator) -> ColonyPolicy:
    """Uniform within the bounds."""
    low, high = action_bounds(rules)
    return lambda rows, _: low + (high - low) * torch.rand(len(rows), 5, generator=generator)


def constant_policy(actions: Float[Tensor, "colony 5"]) -> ColonyPolicy:
    """Each colony its own action, again and again."""
    return lambda rows, _: actions[rows]


def feedback_policy(rules: Rules, gamma: Float[Tensor, " colony"]) -> ColonyPolicy:
    """Hold the size and the middle: r = (n − ⌈Nc/2⌉ + ½)/n, θ = −k (cy − H/2), within bounds; γ of each colony.

    It throws as far as α and ν allow, which is what γ is chosen for.
    """
    ratio, _, alpha, noise, theta = rules.bounds
    kept = -(-rules.target_nodes // 2)

    def act(rows: Tensor, colonies: Colonies) -> Actions:
        n = colonies.n.clamp(min=1)
        columns = {
            "delete_ratio": ((n - kept + SMALLEST) / n).clamp(ratio.low, ratio.high),
            "gamma": gamma[rows],
            "alpha": torch.full_like(gamma[rows], alpha.low),
            "noise": torch.full_like(gamma[rows], noise.high),
            "theta": (-GAIN * (colonies.centroid[:, 1] - rules.height / 2)).clamp(
                theta.low, theta.high
            ),
        }
        return torch.stack([columns[name] for name in PARAMETERS], 1)

    return act


def noisy_policy(
    rules: Rules, act: ColonyPolicy, share: float, generator: Generator
) -> ColonyPolicy:
    """The same policy with uniform noise of ± `share` of each range, within the bounds."""
    low, high = action_bounds(rules)

    def blur(rows: Tensor, colonies: Colonies) -> Actions:
        noise = share * (2 * torch.rand(len(rows), 5, generator=generator) - 1)
        return (act(rows, colonies) + noise * (high - low)).clamp(low, high)

    return blur
