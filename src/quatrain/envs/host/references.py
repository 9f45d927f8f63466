"""an environment -> policies that learn nothing, their returns, and the scale of observations"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float64, Shaped

from quatrain.envs.host.envs import Act, Begin, Episodes, HostEnvs, join, play_range
from quatrain.envs.host.masks import nearest_legal
from quatrain.envs.host.score import ORIGIN, UNIT, score
from quatrain.envs.host.sizes import FEWEST, Size
from quatrain.envs.host.spaces import Interface, draw_actions
from quatrain.errors import warn
from quatrain.statistics import bootstrap_interval

# Returns of policies without learning, by name; one of them is `random`.
References = Mapping[str, Float64[np.ndarray, " _"]]


class Moments(NamedTuple):
    """Holds mean and variance of observations."""

    mean: Float64[np.ndarray, " obs"]
    variance: Float64[np.ndarray, " obs"]


def random_policy(interface: Interface, rng: np.random.Generator) -> Act:
    """Returns the policy that draws every action uniformly, of legal ones where there are masks."""
    return lambda obs: draw_actions(interface, rng, obs.shape[:2], obs)


def constant_policy(interface: Interface, action: Shaped[np.ndarray, "*action"]) -> Act:
    """Returns the policy that repeats one action, or the nearest legal one."""
    if interface.has_mask:
        begin = interface.vector[1]
        return lambda obs: nearest_legal(interface.action_counts, action, obs[..., begin:])
    return lambda obs: np.broadcast_to(action, obs.shape[:2] + action.shape)


def constant_candidates(
    interface: Interface, count: int, rng: np.random.Generator
) -> Shaped[np.ndarray, "point *action"]:
    """Returns all indices if there are no more than `count`, else a draw, as of several indices; of
    vectors the middle and a draw.
    """
    if len(interface.action_counts) > 1:
        return draw_actions(interface, rng, (count,))
    if interface.action_counts:
        drawn = rng.permutation(*interface.action_counts)[:count]
        return np.sort(drawn) if len(drawn) <= FEWEST else drawn  # of more not all may be tried
    middle = (np.array(interface.action_low) + np.array(interface.action_high)) / 2
    drawn = draw_actions(interface, rng, (count - 1,))
    return np.concatenate([middle[None].astype(interface.action_dtype), drawn])


def play_policies(envs: HostEnvs, policies: Sequence[Begin], size: Size) -> list[Episodes]:
    """Plays the same episodes by each policy, in place: the fewest, and as many more as fit by the
    lengths of those.

    Each number is fixed before its episodes are played, because the first to end are the shortest.
    That it follows from lengths moves a mean return by less than its standard error over the root
    of their number.
    """
    played = [play_range(envs, begin, 0, size.fewest) for begin in policies]
    longest = max(each.lengths.mean() for each in played)
    return [
        _play_on(envs, *each, size.count(longest)) for each in zip(policies, played, strict=True)
    ]


def _play_on(envs: HostEnvs, begin: Begin, played: Episodes, count: int) -> Episodes:
    """Returns at least `count` episodes, of which some have been played."""
    first = len(played.lengths)
    if count <= first:
        return played
    return join([played, play_range(envs, begin, first, count - first)])


def play_best_constant(
    envs: HostEnvs, actions: Shaped[np.ndarray, "point *action"], size: Size
) -> Episodes:
    """Plays actions throughout; returns the episodes of the best one.

    Each plays one episode: FEWEST of them, and as many more as fit into half of the transitions.
    Then the better half plays twice as many, until one is left: successive halving, 'Non-stochastic
    Best Arm Identification and Hyperparameter Optimization' (2016).
    """
    tried: list[tuple[Begin, Episodes]] = []
    spent = 0
    for action in actions:
        if len(tried) >= FEWEST and spent > size.transitions / 2:
            break
        begin: Begin = partial(constant_policy, envs.interface, np.asarray(action))
        tried.append((begin, play_range(envs, begin, 0, 1)))
        spent += int(tried[-1][1].lengths.sum())
    while len(tried) > 1:
        tried.sort(key=lambda each: float(each[1].mean_returns.mean()), reverse=True)
        before = [*tried[: len(tried) // 2]]
        tried = [
            (begin, _play_on(envs, begin, each, 2 * len(each.lengths))) for begin, each in before
        ]
        spent += sum(int(each.lengths.sum()) for _, each in tried) // 2
    ((begin, best),) = tried
    count = size.count(best.lengths.mean(), len(best.lengths), spent)
    return _play_on(envs, begin, best, count)


def play_references(
    envs: HostEnvs, sizes: Mapping[str, Size], constants: int, untrained: Begin
) -> dict[str, Episodes]:
    """Plays the held-out episodes by each policy without learning, in place; the environments' seed
    decides what is drawn. constants: how many actions are tried.
    """
    draws, search = map(np.random.default_rng, np.random.SeedSequence(envs.seed).spawn(2))
    random = partial(random_policy, envs.interface, draws)
    actions = constant_candidates(envs.interface, constants, search)
    return {
        "random": play_policies(envs, [random], sizes["random"])[0],
        "constant": play_best_constant(envs, actions, sizes["constant"]),
        "untrained": play_policies(envs, [untrained], sizes["untrained"])[0],
    }


def warn_if_exceeded(
    model: str, played: Iterable[Episodes], sizes: Mapping[str, Size], trained: int
) -> None:
    """Warns where the fewest episodes take more transitions than the training did."""
    spent = sum(int(each.lengths.sum()) for each in played)
    if spent > trained and sizes["learned"].transitions < math.inf:
        warn(
            f"{model}: held-out episodes took {spent:,} transitions, and the training {trained:,}: "
            f"{FEWEST} episodes are the fewest, and {FEWEST // 2} of constant and untrained "
            "policies; train longer"
        )


def measure(envs: HostEnvs, act: Act, steps: int) -> Moments:
    """Measures what the policy observes beside images and masks in so many steps of the
    environments, in place.
    """
    vector = slice(*envs.interface.vector)
    observed = [envs.step(act(envs.obs)).obs[..., vector] for _ in range(steps)]
    wide = np.concatenate(np.concatenate(observed)).astype(np.float64)
    return Moments(wide.mean(0), wide.var(0))


def returns_of(played: Mapping[str, Episodes]) -> References:
    return {name: episodes.mean_returns for name, episodes in played.items()}


def reference_scores(references: References) -> dict[str, float]:
    """Returns the mean return and the score of each policy without learning."""
    means = {f"{name}_return": float(each.mean()) for name, each in references.items()}
    return means | {
        f"{name}_score": score_of(each, references) for name, each in references.items()
    }


def seed_scores(episodes: Episodes, references: References) -> dict[str, float]:
    """Returns what both learners record of the held-out episodes of one seed."""
    returns = episodes.mean_returns
    mean = float(returns.mean())
    origin, unit = _scale(returns, references)
    return {
        "score": score(mean, origin, unit),
        ORIGIN: origin,
        UNIT: unit,
        "return_mean": mean,
        "return_se": float(returns.std(ddof=1) / np.sqrt(len(returns))),
        "return_least": float(returns.min()),
        "held_out_episodes": float(len(returns)),
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
    """Computes the score of a policy, sign(z) log2(1 + |z|), z = (mean(returns) - best mean of
    references) / sd(random).

    0 for the best policy without learning; one more doubles the distance from it. Learners of
    other seeds differ in proportion to what they have learned, which the logarithm makes the same
    at any distance.

    Args:
        returns: undiscounted, of one policy.
        references: those of policies without learning, among them `random`.
    """
    return score(float(returns.mean()), *_scale(returns, references))


def _scale(
    returns: Float64[np.ndarray, " episode"], references: Mapping[str, Float64[np.ndarray, " _"]]
) -> tuple[float, float]:
    """Returns origin and unit of the score: the deviation of the policy's own returns where those
    of random actions are all alike, and the distance itself (a score of 1) where both are.
    """
    best = max(float(each.mean()) for each in references.values())
    distance = abs(float(returns.mean()) - best)
    units = (_deviation(references["random"]), _deviation(returns), distance)
    return best, next((each for each in units if each > 0), 1.0)


def _deviation(returns: Float64[np.ndarray, " episode"]) -> float:
    deviation = float(returns.std(ddof=1))
    return deviation if deviation > ROUNDING * np.abs(returns).max() else 0.0
