"""episodes in a user's environment -> what scores have of their own: distances from policies that
learned nothing
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quatrain.envs.host.envs import Begin, Episodes
from quatrain.envs.host.film import film_if_rendered
from quatrain.envs.host.references import (
    play_policies,
    play_references,
    reference_scores,
    return_interval,
    seed_scores,
    warn_if_exceeded,
)
from quatrain.envs.host.rules import REFERENCES as REFERENCES
from quatrain.models.iqn import network
from quatrain.models.iqn.collect import NO_RETURN, check
from quatrain.models.iqn.config import IqnUserEnvConfig
from quatrain.models.iqn.learn import State, evaluation_params, init_params
from quatrain.models.iqn.rules import USER_ENV_GATED
from quatrain.models.iqn.train import host_policy
from quatrain.models.iqn.user_env import MAX_ACTIONS, Dataset, sizes

# Scores with their spread over seeds.
SPREAD = (*(gated.metric for gated in USER_ENV_GATED), "return_mean")
# The policies beside a learning curve, and a remark.
BESIDE = ("learned", "constant", "untrained", "random")
REMARK = ""


class Outcome(NamedTuple):
    """Holds the held-out episodes of one policy."""

    episodes: Episodes

    @property
    def returns(self) -> Float[np.ndarray, "agent env"]:
        return self.episodes.returns.T


def play_held_out(
    config: IqnUserEnvConfig,
    params: Sequence[network.Params],
    state: State,
    dataset: Dataset,
    seed: int,
) -> tuple[list[Outcome], dict[str, Outcome]]:
    """Plays the held-out episodes by the greedy policy of each seed, and by the references; the
    untrained one has the first networks of the first seed.
    """
    check(config, dataset)
    policies = [policy_of(config, state, seed, each) for seed, each in enumerate(params)]
    networks = init_params(config, sizes(config, dataset), state.base_key[0])
    untrained = policy_of(config, state, 0, networks)
    world, held_out_seed = config.world, int(dataset.held_out.seed[0])
    with closing(world.Envs(config.env, world.MOST_ENVS, held_out_seed)) as envs:
        learned = play_policies(envs, policies, config.held_out["learned"])
        played = play_references(envs, config.held_out, MAX_ACTIONS, untrained)
    trained = config.seeds * config.transitions
    warn_if_exceeded("iqn", [*learned, *played.values()], config.held_out, trained)
    return list(map(Outcome, learned)), {name: Outcome(each) for name, each in played.items()}


def policy_of(config: IqnUserEnvConfig, state: State, seed: int, params: network.Params) -> Begin:
    """Returns what begins the greedy policy of these parameters, with the scale of a seed."""
    return partial(host_policy, config, state.scale, seed, params)


def learned_policy(config: IqnUserEnvConfig, state: State, dataset: Dataset) -> Begin:
    """Returns what begins the judged policy of the first seed."""
    params = network.pick(evaluation_params(config, state), 0)
    return policy_of(config, state, 0, params)


def pictures(
    config: IqnUserEnvConfig, state: State, dataset: Dataset, _outcomes: Any, _scores: Any
) -> dict[str, Any]:
    """Returns the pictures that only users' environments have."""
    from quatrain.models.iqn.user_env_plots import draw_expectations

    policy = learned_policy(config, state, dataset)
    film = film_if_rendered(config.env, policy, int(dataset.held_out.seed[0]))
    return film | {"expectations": draw_expectations(config, state, dataset)}


def scores(
    config: IqnUserEnvConfig, outcome: Outcome, references: Mapping[str, Outcome]
) -> dict[str, float]:
    """Computes the scores of one seed.

    `score` is the return's distance from that of the best policy without learning, on a logarithmic
    scale (`score_of`).
    """
    lengths = {"episode_steps": float(outcome.episodes.lengths.mean())}
    return seed_scores(outcome.episodes, _mean_returns(references)) | lengths


def scores_of_run(
    config: IqnUserEnvConfig, state: State, outcomes: Any, seed: int
) -> dict[str, float]:
    """Computes the scores of the references, the greedy return by which parameters were selected,
    and the bootstrap interval of a single seed's return over held-out episodes.
    """
    scores = reference_scores(_mean_returns(outcomes.references))
    best = float(np.mean(state.best.greedy_return))
    if best > NO_RETURN:
        scores["selected_return"] = best
    if len(outcomes.learned) > 1:
        return scores
    samples = config.evaluate.bootstrap_samples
    return scores | return_interval(outcomes.learned[0].episodes, seed, samples)


def _mean_returns(references: Mapping[str, Outcome]) -> dict[str, Float[np.ndarray, " env"]]:
    return {name: outcome.episodes.mean_returns for name, outcome in references.items()}
