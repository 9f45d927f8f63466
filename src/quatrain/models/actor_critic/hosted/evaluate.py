"""state, held-out episodes -> scores of the policy, and of policies without learning"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float64
from torch import Tensor

from quatrain.envs.host.episodes import Episodes, play_episodes
from quatrain.envs.host.scoring import score_of
from quatrain.frameworks.torch.rng import seeded
from quatrain.models.actor_critic.hosted.acting import deterministic_policy
from quatrain.models.actor_critic.hosted.collect import Dataset, check
from quatrain.models.actor_critic.hosted.config import HostedActorCriticConfig
from quatrain.models.actor_critic.hosted.network import make
from quatrain.models.actor_critic.hosted.rules import GATED, REFERENCES
from quatrain.models.actor_critic.hosted.train import State
from quatrain.models.actor_critic.hosted.trainer import load_actor
from quatrain.models.actor_critic.ppo.state import SeedState
from quatrain.statistics import aggregate_seeds, bootstrap_interval

UNTRAINED = 3  # networks; a single one may be good by luck
# Scores with their spread over seeds.
SPREAD = (*(gated.metric for gated in GATED), "return_mean")


def evaluate(
    config: HostedActorCriticConfig, state: State, dataset: Dataset, seed: int
) -> dict[str, float]:
    """Returns the scores; of several seeds means and the spread of SPREAD (`aggregate_seeds`).

    The deterministic policy of the weights of highest return in training plays the held-out
    episodes, whose returns are undiscounted. `score` is the return's distance from that of the
    best policy without learning, on a logarithmic scale (`score_of`). `untrained` are such policies
    with new weights. For a single seed `return_mean_held_out_low` and `_high` are bootstrapped over
    episodes.
    """
    outcomes = evaluate_policy(config, state, dataset)
    references = reference_returns(config, dataset)
    of_seeds = [
        {"score": score_of(outcome.returns[:, 0], references)}
        | _scores(config, outcome, seed_state)
        for outcome, seed_state in zip(outcomes, state.seeds, strict=True)
    ]
    scores = aggregate_seeds(of_seeds, SPREAD)
    for name, returns in references.items():
        scores[f"{name}_return"] = returns.mean()
        scores[f"{name}_score"] = score_of(returns, references)
    if config.seeds == 1:
        scores |= _interval(config, outcomes[0].returns[:, 0], seed)
    return {name: float(value) for name, value in scores.items()}


def evaluate_policy(
    config: HostedActorCriticConfig, state: State, dataset: Dataset
) -> list[Episodes]:
    """Plays the held-out episodes with the deterministic policy of each seed."""
    check(config, dataset)
    return [play_held_out(config, best.params, dataset) for best in state.best]


def play_held_out(
    config: HostedActorCriticConfig, params: dict[str, Tensor], dataset: Dataset
) -> Episodes:
    act = deterministic_policy(load_actor(config, dataset.interface.restored, params))
    held_out = dataset.held_out
    return play_episodes(config.env, config.collect.held_out_episodes, int(held_out.seed), act)


def reference_returns(
    config: HostedActorCriticConfig, dataset: Dataset
) -> dict[str, Float64[np.ndarray, " returns"]]:
    """Returns the returns of each policy without learning in the held-out episodes."""
    space = dataset.interface.restored
    untrained = []
    for seed in range(UNTRAINED):
        network = seeded(lambda: make(config, space), seed)
        episodes = play_held_out(config, dict(network.state_dict()), dataset)
        untrained.append(episodes.returns[:, 0])
    held_out = dataset.held_out
    returns = (held_out.random, held_out.constant, np.concatenate(untrained))
    return dict(zip(REFERENCES, returns, strict=True))


def _scores(config: HostedActorCriticConfig, outcome: Episodes, seed: SeedState) -> dict[str, Any]:
    returns = outcome.returns[:, 0]
    scores = {
        "return_mean": returns.mean(),
        "return_se": returns.std(ddof=1) / np.sqrt(len(returns)),
        "return_least": returns.min(),
        "return_greatest": returns.max(),
        "length_mean": outcome.lengths.mean(),
        "terminated": outcome.terminated.mean(),
        "best_transitions": int(seed.best.iteration) * config.train.batch,
    }
    if seed.best.was_validated:
        scores["validation_return"] = float(seed.best.validation_return)
    return scores


def _interval(
    config: HostedActorCriticConfig, returns: Float64[np.ndarray, " episode"], seed: int
) -> Mapping[str, float]:
    """Bootstraps the mean over episodes; the interval says nothing about other learners."""
    rng = np.random.default_rng(seed)
    low, high = bootstrap_interval([returns], np.mean, rng, config.evaluate.bootstrap_samples)
    return {"return_mean_held_out_low": low, "return_mean_held_out_high": high}
