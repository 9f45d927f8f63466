"""state, held-out envs -> scores: returns of the greedy policy, and of reference policies"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from quatrain.models.iqn.config import LearnerConfig
from quatrain.models.iqn.learn import State, evaluation_params
from quatrain.models.iqn.network import pick
from quatrain.progress import Evaluation
from quatrain.statistics import aggregate_seeds

Returns = Float[np.ndarray, "agent env"]


class Outcomes(NamedTuple):
    """Holds an episode of every held-out env: for each seed, and for each reference policy.

    Each has `returns`, (agent, env), undiscounted sums of an episode's rewards.
    """

    learned: list[Any]
    references: dict[str, Any]

    def of(self, name: str) -> list[Any]:
        """Returns the outcomes of one policy; `learned` has one for each seed."""
        return self.learned if name == "learned" else [self.references[name]]


def evaluate(config: LearnerConfig, state: State, dataset: Any, seed: int) -> Evaluation:
    """Computes the scores of iqn; with several seeds means, and the spread of gated ones
    (`aggregate_seeds`).

    Returns are undiscounted sums of an episode's rewards, means over envs and agents. `score` and
    others are those of the world (`treasurehunt_scores`, `user_env_scores`).
    """
    world = scores_of(config)
    outcomes = play_held_out(config, state, dataset, seed)
    references = outcomes.references
    seed_scores = [
        scores_of_returns(each.returns) | world.scores(config, each, references)
        for each in outcomes.learned
    ]
    scores = aggregate_seeds(seed_scores, world.SPREAD)
    for name, outcome in references.items():
        scores[f"{name}_return"] = outcome.returns.mean()
        scores[f"{name}_return_se"] = standard_error(outcome.returns)
    scores |= world.scores_of_run(config, state, outcomes, seed)
    return Evaluation({name: float(value) for name, value in scores.items()}, outcomes)


def scores_of(config: LearnerConfig) -> Any:
    """Returns the module of the config's world with `play_held_out`, `learned_policy`, `scores`,
    `SPREAD` and `scores_of_run`.
    """
    # Here, because a user's environment needs no treasure hunt, and that no environment of users.
    if config.brings_env:
        from quatrain.models.iqn import user_env_scores

        return user_env_scores
    from quatrain.models.iqn import treasurehunt_scores

    return treasurehunt_scores


def play_held_out(config: LearnerConfig, state: State, dataset: Any, seed: int) -> Outcomes:
    """Plays the held-out envs by the greedy policy of each seed, and by the references."""
    params = evaluation_params(config, state)
    by_seed = [pick(params, learner) for learner in range(config.seeds)]
    return Outcomes(*scores_of(config).play_held_out(config, by_seed, state, dataset, seed))


def learned_policy(config: LearnerConfig, state: State, dataset: Any) -> Any:
    """Returns what begins the judged policy of the first seed in a user's environment."""
    return scores_of(config).learned_policy(config, state, dataset)


def scores_of_returns(returns: Returns) -> dict[str, float]:
    scores = {"return_mean": returns.mean(), "return_se": standard_error(returns)}
    if len(returns) > 1:
        scores |= {f"return_agent_{agent}": mean for agent, mean in enumerate(returns.mean(1))}
    return scores


def standard_error(returns: Returns) -> float:
    """Computes the standard error over envs, since the agents of an env are correlated."""
    env_returns = returns.mean(0)
    return float(env_returns.std(ddof=1) / np.sqrt(len(env_returns)))
