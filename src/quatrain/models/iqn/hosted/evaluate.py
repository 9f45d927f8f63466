"""state, held-out episodes -> scores: returns beside those of policies that learned nothing"""

from collections.abc import Sequence
from contextlib import closing
from functools import partial
from operator import itemgetter
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from quatrain.envs.host.envs import HostEnvs
from quatrain.envs.host.episodes import Act, Episodes, play
from quatrain.envs.host.scoring import score_of
from quatrain.models.iqn.hosted.collect import Dataset, check
from quatrain.models.iqn.hosted.config import HostedIqnConfig
from quatrain.models.iqn.hosted.playing import GreedyPolicy, by_seed
from quatrain.models.iqn.hosted.rules import GATED
from quatrain.models.iqn.hosted.state import NOT_EVALUATED, State, init_params
from quatrain.models.iqn.hosted.train import evaluation_params
from quatrain.statistics import aggregate_seeds, bootstrap_interval

# Scores with their spread over seeds.
SPREAD = (*(gated.metric for gated in GATED), "return_mean")


class Outcomes(NamedTuple):
    """Holds the held-out episodes of each learned seed, and of each reference policy."""

    learned: list[Episodes]
    references: dict[str, Episodes]


def evaluate(
    config: HostedIqnConfig, state: State, dataset: Dataset, seed: int
) -> dict[str, float]:
    """Computes the scores of iqn in a user's environment; with several seeds means, and the spread
    of SPREAD (`aggregate_seeds`).

    Returns are undiscounted sums of an episode's rewards, means over episodes and agents. `score`
    is the return's distance from that of the best policy without learning, on a logarithmic scale
    (`score_of`). The constant policy is that of the best action in these episodes; the untrained
    one has the first networks of the first seed.
    """
    outcomes = play_held_out(config, state, dataset, seed)
    references = {name: mean_returns(each) for name, each in outcomes.references.items()}
    seed_scores = [
        {"score": score_of(mean_returns(episodes), references)} | _scores(episodes)
        for episodes in outcomes.learned
    ]
    scores = aggregate_seeds(seed_scores, SPREAD)
    for name, returns in references.items():
        scores[f"{name}_return"] = returns.mean()
        scores[f"{name}_return_se"] = standard_error(returns)
        scores[f"{name}_score"] = score_of(returns, references)
    best = float(np.mean(state.best.greedy_return))
    if best > NOT_EVALUATED:
        scores["selected_return"] = best
    scores |= _confidence_interval(config, outcomes.learned, seed)
    return {name: float(value) for name, value in scores.items()}


def _confidence_interval(
    config: HostedIqnConfig, learned: Sequence[Episodes], seed: int
) -> dict[str, float]:
    """Computes the bootstrap interval of a single seed's return over held-out episodes, which says
    nothing about other seeds.
    """
    if len(learned) > 1:
        return {}
    returns = mean_returns(learned[0])
    low = high = returns[0]
    if np.ptp(returns) > 0:
        low, high = bootstrap_interval(
            [returns],
            lambda values, axis: values.mean(axis),
            np.random.default_rng(seed),
            config.evaluate.bootstrap_samples,
        )
    return {"return_mean_held_out_low": low, "return_mean_held_out_high": high}


# Playing.


def play_held_out(config: HostedIqnConfig, state: State, dataset: Dataset, seed: int) -> Outcomes:
    """Plays the held-out episodes by the greedy policy of each seed, and by the references."""
    check(config, dataset)
    count = config.collect.held_out_worlds
    with closing(HostEnvs(config.env, count, int(dataset.held_out.seed[0]))) as envs:
        learned = [
            play(envs, greedy_policy(config, state, learner)) for learner in range(config.seeds)
        ]
        untrained = init_params(config, envs.interface, state.base_key[0])
        policy = GreedyPolicy(config, by_seed(state.scale)[0], untrained)
        references = {
            "random": play(envs, random_policy(envs.interface.action_count, seed)),
            "constant": best_constant(envs),
            "untrained": play(envs, policy),
        }
    return Outcomes(learned, references)


def greedy_policy(config: HostedIqnConfig, state: State, seed: int) -> GreedyPolicy:
    """Returns the judged policy of one seed."""
    params = jax.tree.map(itemgetter(seed), evaluation_params(config, state))
    return GreedyPolicy(config, by_seed(state.scale)[seed], params)


def random_policy(actions: int, seed: int) -> Act:
    """Returns the policy that draws every action uniformly."""
    rng = np.random.default_rng(seed)
    return lambda obs: rng.integers(actions, size=obs.shape[:2])


def best_constant(envs: HostEnvs) -> Episodes:
    """Plays each action throughout; returns the episodes of the best one."""
    actions = range(envs.interface.action_count)
    plays = [play(envs, partial(_act_constantly, action)) for action in actions]
    return max(plays, key=lambda episodes: mean_returns(episodes).mean())


def _act_constantly(action: int, obs: np.ndarray) -> np.ndarray:
    return np.full(obs.shape[:2], action)


# Numbers.


def mean_returns(episodes: Episodes) -> Float[np.ndarray, " episode"]:
    """Returns the mean over agents, which share their episodes."""
    return episodes.returns.mean(1)


def standard_error(returns: Float[np.ndarray, " episode"]) -> float:
    return float(returns.std(ddof=1) / np.sqrt(len(returns)))


def _scores(episodes: Episodes) -> dict[str, float]:
    returns = mean_returns(episodes)
    scores = {
        "return_mean": float(returns.mean()),
        "return_se": standard_error(returns),
        "return_least": float(returns.min()),
        "episode_steps": float(episodes.lengths.mean()),
    }
    by_agent = episodes.returns.mean(0)
    if len(by_agent) > 1:
        scores |= {f"return_agent_{agent}": float(mean) for agent, mean in enumerate(by_agent)}
    return scores
