"""an environment -> policies that learn nothing, their returns, and the scale of observations"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

from quatrain.envs.host.envs import Act, Episodes, HostEnvs
from quatrain.envs.host.spaces import Interface, draw_actions
from quatrain.statistics import bootstrap_interval

# Returns of policies without learning, by name; one of them is `random`.
References = Mapping[str, Float64[np.ndarray, " _"]]


class Search(NamedTuple):
    """Holds constant actions with the mean return of each."""

    actions: Shaped[np.ndarray, "point *action"]
    returns: Float64[np.ndarray, " point"]

    @property
    def best(self) -> Shaped[np.ndarray, "*action"]:
        return np.asarray(self.actions[self.returns.argmax()])


class Moments(NamedTuple):
    """Holds mean and variance of observations."""

    mean: Float64[np.ndarray, " obs"]
    variance: Float64[np.ndarray, " obs"]


def random_policy(interface: Interface, rng: np.random.Generator) -> Act:
    """Returns the policy that draws every action uniformly."""
    return lambda obs: draw_actions(interface, rng, obs.shape[:2])


def constant_policy(action: Shaped[np.ndarray, "*action"]) -> Act:
    """Returns the policy that repeats one action."""
    return lambda obs: np.broadcast_to(action, obs.shape[:2] + action.shape)


def constant_candidates(
    interface: Interface, count: int, rng: np.random.Generator
) -> Shaped[np.ndarray, "point *action"]:
    """Returns all indices if there are no more than `count`, else a draw; of vectors the middle and
    a draw.
    """
    if interface.action_count:
        return np.sort(rng.permutation(interface.action_count)[:count])
    middle = (np.array(interface.action_low) + np.array(interface.action_high)) / 2
    drawn = draw_actions(interface, rng, (count - 1,))
    return np.concatenate([middle[None].astype(interface.action_dtype), drawn])


def search_constant(
    actions: Shaped[np.ndarray, "point *action"], play: Callable[[Act], Episodes]
) -> Search:
    """Plays each action throughout."""
    played = [play(constant_policy(np.asarray(action))) for action in actions]
    return Search(actions, np.array([episodes.mean_returns.mean() for episodes in played]))


def measure(envs: HostEnvs, act: Act, steps: int) -> Moments:
    """Measures what the policy observes in so many steps of the environments, in place."""
    observed = [envs.step(act(envs.obs)).obs for _ in range(steps)]
    wide = np.concatenate(observed).reshape(-1, envs.interface.observation_size).astype(np.float64)
    return Moments(wide.mean(0), wide.var(0))


def reference_scores(references: References) -> dict[str, float]:
    """Returns the mean return and the score of each policy without learning."""
    means = {f"{name}_return": float(each.mean()) for name, each in references.items()}
    return means | {
        f"{name}_score": score_of(each, references) for name, each in references.items()
    }


def seed_scores(episodes: Episodes, references: References) -> dict[str, float]:
    """Returns what both learners record of the held-out episodes of one seed."""
    returns = episodes.mean_returns
    return {
        "score": score_of(returns, references),
        "return_mean": float(returns.mean()),
        "return_se": float(returns.std(ddof=1) / np.sqrt(len(returns))),
        "return_least": float(returns.min()),
    }


def return_interval(episodes: Episodes, seed: int, resamples: int) -> dict[str, float]:
    """Bootstraps the mean over episodes; the interval says nothing about other learners."""
    rng = np.random.default_rng(seed)
    low, high = bootstrap_interval([episodes.mean_returns], np.mean, rng, resamples)
    return {"return_mean_held_out_low": low, "return_mean_held_out_high": high}


# Returns whose deviation is smaller than this part of them are alike: sums of rewards are rounded.
ROUNDING = 1e-9


def score_of(
    returns: Float64[np.ndarray, " episode"], references: Mapping[str, Float64[np.ndarray, " _"]]
) -> float:
    """Computes sign(z) log2(1 + |z|), z = (mean(returns) - best mean of references) / sd(random).

    0 for the best policy without learning; one more doubles the distance from it. Learners of
    other seeds differ in proportion to what they have learned, which the logarithm makes the same
    at any distance. The unit is the deviation of the policy's own returns where those of random
    actions are all alike, and the distance itself (a score of 1) where both are.

    Args:
        returns: undiscounted, of one policy.
        references: those of policies without learning, among them `random`.
    """
    best = max(float(each.mean()) for each in references.values())
    distance = float(returns.mean()) - best
    units = (_deviation(references["random"]), _deviation(returns), abs(distance))
    unit = next((each for each in units if each > 0), 1.0)
    return float(np.copysign(np.log2(1 + abs(distance) / unit), distance))


def _deviation(returns: Float64[np.ndarray, " episode"]) -> float:
    deviation = float(returns.std(ddof=1))
    return deviation if deviation > ROUNDING * np.abs(returns).max() else 0.0
