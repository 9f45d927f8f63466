"""state, held-out episodes -> scores of the policy, and of policies without learning"""

from collections.abc import Mapping
from contextlib import closing
from functools import partial

import numpy as np
from jaxtyping import Float32, Shaped
from torch import Tensor

from quatrain.animation import Animation
from quatrain.envs.host.envs import MOST_ENVS, Act, Begin, Episodes, HostEnvs
from quatrain.envs.host.film import film_if_rendered
from quatrain.envs.host.references import (
    play_policies,
    play_references,
    return_interval,
    returns_of,
    seed_scores,
    warn_if_exceeded,
)
from quatrain.envs.host.references import reference_scores as scores_of_returns
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
    policies = [partial(policy_of, config, dataset, best.params) for best in state.best]
    with held_out_envs(config, dataset) as envs:
        return play_policies(envs, policies, config.held_out["learned"])


def held_out_envs(config: ActorCriticUserEnvConfig, dataset: Dataset) -> closing[HostEnvs]:
    return closing(HostEnvs(config.env, MOST_ENVS, int(dataset.held_out.seed)))


def policy_of(config: ActorCriticUserEnvConfig, dataset: Dataset, params: dict[str, Tensor]) -> Act:
    return playing(load_actor(config, spec_of(config, dataset), params).act)


def learned_policy(config: ActorCriticUserEnvConfig, state: State, dataset: Dataset) -> Begin:
    """Returns what begins the deterministic policy of the first seed."""
    return partial(policy_of, config, dataset, state.best[0].params)


def film(config: ActorCriticUserEnvConfig, state: State, dataset: Dataset) -> dict[str, Animation]:
    """Returns a held-out episode as it is rendered, by its name; nothing where it is not."""
    policy = learned_policy(config, state, dataset)
    return film_if_rendered(config.env, policy, int(dataset.held_out.seed))


def reference_returns(config: ActorCriticUserEnvConfig, dataset: Dataset) -> Mapping[str, Episodes]:
    """Plays the held-out episodes by each policy without learning."""
    constants = config.collect.constant_search
    untrained = partial(untrained_policy, config, dataset)
    with held_out_envs(config, dataset) as envs:
        return play_references(envs, config.held_out, constants, untrained)


def untrained_policy(config: ActorCriticUserEnvConfig, dataset: Dataset) -> Act:
    """Returns a policy of networks without training, which take turns among the environments."""
    spec = spec_of(config, dataset)
    networks = [seeded(lambda: make_network(config, spec), seed) for seed in range(UNTRAINED)]
    acts = [policy_of(config, dataset, dict(each.state_dict())) for each in networks]

    def act(obs: Float32[np.ndarray, "env agent obs"]) -> Shaped[np.ndarray, "env agent *action"]:
        envs = range(len(obs))
        return np.concatenate([acts[env % UNTRAINED](obs[env : env + 1]) for env in envs])

    return act


def reference_scores(references: Mapping[str, Episodes]) -> dict[str, float]:
    return scores_of_returns(returns_of(references))


def scores_of(
    config: ActorCriticUserEnvConfig,
    outcome: Episodes,
    seed_state: SeedState,
    dataset: Dataset,
    references: Mapping[str, Episodes],
    seed: int,
) -> dict[str, float]:
    """Returns the scores of one seed; `score` is the return's distance from that of the best policy
    without learning, on a logarithmic scale.
    """
    played = [outcome, *references.values()]
    warn_if_exceeded("actor_critic", played, config.held_out, config.transitions)
    return seed_scores(outcome, returns_of(references)) | {
        "return_greatest": float(outcome.returns.max()),
        "length_mean": float(outcome.lengths.mean()),
        "terminated": float(outcome.terminated.mean()),
    }


def intervals(
    config: ActorCriticUserEnvConfig, outcome: Episodes, dataset: Dataset, seed: int
) -> dict[str, float]:
    return return_interval(outcome, seed, config.evaluate.bootstrap_samples)
