"""state, held-out episodes -> scores of the policy, and of policies without learning"""

import numpy as np
from torch import Tensor

from quatrain.envs.host.envs import Episodes, play_episodes
from quatrain.envs.host.references import References, return_interval, seed_scores
from quatrain.envs.host.references import reference_scores as reference_scores
from quatrain.envs.host.rules import REFERENCES
from quatrain.frameworks.torch import seeded
from quatrain.models.actor_critic.config import ActorCriticUserEnvConfig
from quatrain.models.actor_critic.network import load_actor, make_network
from quatrain.models.actor_critic.train import SeedState, State
from quatrain.models.actor_critic.user_env import Dataset, check, playing, spec_of

# Scores whose spread over seeds is reported: those that rules.py judges, and the return.
SPREAD = ("return_mean", "score")
UNTRAINED = 3  # networks; a single one may be good by luck


def evaluate_policy(
    config: ActorCriticUserEnvConfig, state: State, dataset: Dataset
) -> list[Episodes]:
    """Plays the held-out episodes with the deterministic policy of each seed."""
    check(config, dataset)
    return [play_held_out(config, best.params, dataset) for best in state.best]


def play_held_out(
    config: ActorCriticUserEnvConfig, params: dict[str, Tensor], dataset: Dataset
) -> Episodes:
    act = playing(load_actor(config, spec_of(config, dataset), params).act)
    held_out = dataset.held_out
    return play_episodes(config.env, config.collect.held_out_episodes, int(held_out.seed), act)


def reference_returns(config: ActorCriticUserEnvConfig, dataset: Dataset) -> References:
    """Returns the returns of each policy without learning in the held-out episodes."""
    spec = spec_of(config, dataset)
    untrained = []
    for seed in range(UNTRAINED):
        network = seeded(lambda: make_network(config, spec), seed)
        episodes = play_held_out(config, dict(network.state_dict()), dataset)
        untrained.append(episodes.returns[:, 0])
    held_out = dataset.held_out
    returns = (held_out.random, held_out.constant, np.concatenate(untrained))
    return dict(zip(REFERENCES, returns, strict=True))


def scores_of(
    config: ActorCriticUserEnvConfig,
    outcome: Episodes,
    seed_state: SeedState,
    dataset: Dataset,
    references: References,
    seed: int,
) -> dict[str, float]:
    """Returns the scores of one seed; `score` is the return's distance from that of the best policy
    without learning, on a logarithmic scale.
    """
    return seed_scores(outcome, references) | {
        "return_greatest": float(outcome.returns.max()),
        "length_mean": float(outcome.lengths.mean()),
        "terminated": float(outcome.terminated.mean()),
    }


def intervals(
    config: ActorCriticUserEnvConfig, outcome: Episodes, dataset: Dataset, seed: int
) -> dict[str, float]:
    return return_interval(outcome, seed, config.evaluate.bootstrap_samples)
