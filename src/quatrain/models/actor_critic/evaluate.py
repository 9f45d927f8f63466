"""state, held-out episodes -> scores of the policy, and of policies without learning."""

from typing import Any

from quatrain.models.actor_critic.config import Config
from quatrain.models.actor_critic.train import SeedState, State
from quatrain.progress import Evaluation
from quatrain.statistics import aggregate_seeds


def scoring(config: Config) -> Any:
    """Returns the module of what is judged in the config's environment; only that one is loaded."""
    if config.brings_env:
        from quatrain.models.actor_critic import user_env_scores

        return user_env_scores
    from quatrain.models.actor_critic import colony_scores

    return colony_scores


def evaluate(config: Config, state: State, dataset: Any, seed: int) -> Evaluation:
    """Returns the scores; of several seeds means, and of the return and what is judged the spread
    (`aggregate_seeds`).

    The deterministic policy plays the held-out episodes, with the weights of highest return in
    evaluations while training, at `best_transitions`; returns are undiscounted. For a single seed
    `NAME_held_out_low` and `_high` are bootstrapped over the episodes, in pairs with those of
    reference policies where they are compared.
    """
    module = scoring(config)
    outcomes = module.evaluate_policy(config, state, dataset)
    references = module.reference_returns(config, dataset)
    of_seeds = [
        module.scores_of(config, outcome, seed_state, dataset, references, seed)
        | _training_scores(config, seed_state)
        for seed_state, outcome in zip(state.seeds, outcomes, strict=True)
    ]
    scores = aggregate_seeds(of_seeds, module.SPREAD) | module.reference_scores(references)
    if config.seeds == 1:
        scores |= module.intervals(config, outcomes[0], dataset, seed)
    # Pictures of a user's environment show what the references played, too.
    played = (outcomes, references) if config.brings_env else outcomes
    return Evaluation({name: float(value) for name, value in scores.items()}, played)


def learned_policy(config: Config, state: State, dataset: Any) -> Any:
    """Returns what begins the deterministic policy of the first seed in a user's environment."""
    return scoring(config).learned_policy(config, state, dataset)


def _training_scores(config: Config, seed_state: SeedState) -> dict[str, float]:
    best = seed_state.best
    scores = {"best_transitions": float(int(best.iteration) * config.train.batch)}
    if best.was_validated:
        scores["validation_return"] = float(best.validation_return)
    return scores
