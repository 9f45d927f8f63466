"""state, held-out colonies -> scores of the policy, and of reference policies."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64

from quatrain.envs.colony.config import REASONS, SUCCESS, Env
from quatrain.envs.colony.dynamics import World
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.envs.colony.world import episodes
from quatrain.models.actor_critic.colony import spec_of, view_of, warn_without_success
from quatrain.models.actor_critic.colony_data import Dataset, InitialColonies, make_colonies
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.network import load_actor
from quatrain.models.actor_critic.train import SeedState, State
from quatrain.statistics import bootstrap_interval

# Scores whose spread over seeds is reported: those that rules.py judges.
SPREAD = (
    "return_mean",
    "margin_over_constant",
    "fraction_of_feedback",
    "success_rate",
    "size_rmse",
)
# Drawn plates from which on intervals are computed: resamples of fewer vary too little.
LEAST_PLATES = 4
SETTLING_STEPS = 4  # steps until the size of a colony enters `size_rmse`
KINDS = {"linear": LINEAR, "exponential": EXPONENTIAL}
TINY = 1e-6


class Outcome(NamedTuple):
    """Holds one episode of each colony.

    returns: undiscounted. n, centroid, action: after each step; NaN after the end of an episode.
    """

    returns: Float[np.ndarray, " colony"]
    lengths: Int64[np.ndarray, " colony"]
    reasons: Int64[np.ndarray, " colony"]
    components: Float[np.ndarray, "colony component"]
    n: Float[np.ndarray, "step colony"]
    centroid: Float[np.ndarray, "step colony 2"]
    action: Float[np.ndarray, "step colony parameter"]


class Outcomes(NamedTuple):
    """Holds what a seed's policy does with the held-out colonies, and with those outside."""

    held_out: Outcome
    outside: Outcome


def evaluate_policy(config: ActorCriticConfig, state: State, dataset: Dataset) -> list[Outcomes]:
    """Runs the deterministic policy of each seed.

    Warns of learners without a success if training, with `evaluate_every: 0`, could not.
    """
    held_out = dataset.held_out
    outcomes = [
        Outcomes(
            run_policy(config, seed, held_out.plates, held_out.colonies),
            run_policy(config, seed, held_out.outside, held_out.colonies_outside),
        )
        for seed in state.seeds
    ]
    if not any(best.was_validated for best in state.best):
        transitions = int(state.best[0].iteration) * config.train.batch
        successes = [float((outcome.reasons == SUCCESS).mean()) for outcome, _ in outcomes]
        warn_without_success(config, "held-out", transitions, successes)
    return outcomes


def run_policy(
    config: ActorCriticConfig,
    seed: SeedState,
    plates: Plates,
    initial: InitialColonies,
    draws: torch.Generator | None = None,
) -> Outcome:
    """Runs one episode of each colony under the policy of a seed, the deterministic one without
    `draws`.
    """
    view = view_of(config, plates, seed.scale)
    actor = load_actor(config, spec_of(config), seed.best.params)
    act = partial(actor.draw, generator=draws) if draws else actor.act
    return run_episodes(view.world, initial, view.playing(act))


def run_episodes(world: World, initial: InitialColonies, policy: ColonyPolicy) -> Outcome:
    rules = world.rules
    outcome = _empty_outcome(rules, len(initial.n))
    for time, moment in enumerate(episodes(world, make_colonies(rules, initial), policy)):
        running = moment.indices.numpy(force=True)
        transition = moment.transition
        outcome.n[time, running] = transition.after.n.numpy(force=True)
        outcome.centroid[time, running] = transition.after.centroid.numpy(force=True)
        outcome.action[time, running] = transition.action.numpy(force=True)
        outcome.components[running] += moment.components.numpy(force=True)
        outcome.lengths[running] = time + 1
        outcome.reasons[running] = transition.reason.numpy(force=True)
    last = int(outcome.lengths.max(initial=1))
    return outcome._replace(
        returns=outcome.components @ np.array([weight for _, weight in rules.reward_weights]),
        n=outcome.n[:last],
        centroid=outcome.centroid[:last],
        action=outcome.action[:last],
    )


def _empty_outcome(rules: Env, colonies: int) -> Outcome:
    return Outcome(
        returns=np.zeros(colonies),
        lengths=np.zeros(colonies, np.int64),
        reasons=np.zeros(colonies, np.int64),
        components=np.zeros((colonies, len(rules.reward_weights))),
        n=np.full((rules.max_steps, colonies), np.nan),
        centroid=np.full((rules.max_steps, colonies, 2), np.nan),
        action=np.full((rules.max_steps, colonies, 5), np.nan),
    )


def final_centroids(outcome: Outcome) -> Float[np.ndarray, "colony 2"]:
    return outcome.centroid[outcome.lengths - 1, np.arange(len(outcome.lengths))]


def reference_returns(
    config: ActorCriticConfig, dataset: Dataset
) -> dict[str, Float[np.ndarray, " colony"]]:
    """Returns the return with each held-out colony of policies without learning."""
    references = dataset.held_out.references
    return {name: getattr(references, name) for name in ("random", "constant", "feedback")}


def reference_scores(references: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return {f"{name}_return": returns.mean() for name, returns in references.items()}


def scores_of(
    config: ActorCriticConfig,
    outcomes: Outcomes,
    seed_state: SeedState,
    dataset: Dataset,
    references: Mapping[str, np.ndarray],
    seed: int,
) -> dict[str, Any]:
    """Returns the scores of one seed; margin and fraction compare its mean return with those of the
    best constant action and of the feedback controller on the same colonies.
    """
    env = config.env
    outcome, outside = outcomes
    succeeded = outcome.reasons == SUCCESS
    progress = np.clip(final_centroids(outcome)[:, 0] / (env.width - 1), 0, 1)
    return {
        **_return_scores(outcome, dataset, references),
        "success_rate": succeeded.mean(),
        "steps_to_goal": outcome.lengths[succeeded].mean() if succeeded.any() else np.nan,
        "final_progress": progress.mean(),
        "size_rmse": size_rmse(config, outcome),
        "lane_rms": _root_mean_square(outcome.centroid[..., 1] - env.height / 2),
        "nodes_mean": np.nanmean(outcome.n),
        "length_mean": outcome.lengths.mean(),
        **{
            f"reason/{reason}": (outcome.reasons == code).mean()
            for code, reason in enumerate(REASONS[1:], 1)
        },
        "stochastic_return_mean": _drawn_return(config, seed_state, dataset, seed),
        **(_outside_scores(outside) if config.collect.n_outside else {}),
    }


def _return_scores(
    outcome: Outcome, dataset: Dataset, references: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    held_out = dataset.held_out
    mean = outcome.returns.mean()
    random, constant, feedback = (float(returns.mean()) for returns in references.values())
    above_random = feedback - random
    kinds = held_out.plates.kind[held_out.colonies.substrate]
    return {
        "return_mean": mean,
        "margin_over_constant": (mean - constant) / max(abs(constant), TINY),
        "fraction_of_feedback": mean / feedback if feedback else np.nan,
        "normalised_score": (mean - random) / above_random if above_random else np.nan,
        **{
            f"return_{name}": outcome.returns[kinds == kind].mean()
            for name, kind in KINDS.items()
            if kind in kinds
        },
    }


def size_rmse(config: ActorCriticConfig, outcome: Outcome) -> float:
    """Returns the root mean square of cells off the target; NaN where every episode ends before
    SETTLING_STEPS.
    """
    return _root_mean_square(outcome.n[SETTLING_STEPS - 1 :] - config.env.target_nodes)


def _root_mean_square(deviation: np.ndarray) -> float:
    """Returns the root mean square of finite elements; NaN without any."""
    finite = deviation[np.isfinite(deviation)]
    return float(np.sqrt(np.square(finite).mean())) if len(finite) else np.nan


def _drawn_return(
    config: ActorCriticConfig, seed_state: SeedState, dataset: Dataset, seed: int
) -> float:
    """Returns the mean return of actions that are drawn."""
    held_out = dataset.held_out
    draws = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
    outcome = run_policy(config, seed_state, held_out.plates, held_out.colonies, draws)
    return float(outcome.returns.mean())


def _outside_scores(outside: Outcome) -> dict[str, Any]:
    return {
        "outside/return_mean": outside.returns.mean(),
        "outside/success_rate": (outside.reasons == SUCCESS).mean(),
    }


def intervals(
    config: ActorCriticConfig, outcomes: Outcomes, dataset: Dataset, seed: int
) -> Mapping[str, float]:
    """Bootstraps over plates if they are drawn, because colonies of a plate share its stiffness;
    returns nothing for fewer than LEAST_PLATES. Bootstraps over colonies if the plate is given; the
    interval then says nothing about other plates. No interval says anything about other seeds.
    """
    returns = outcomes.held_out.returns
    substrate = dataset.held_out.colonies.substrate
    drawn = config.collect.plates == "default_law"
    if drawn and len(np.unique(substrate)) < LEAST_PLATES:
        return {}
    references = dataset.held_out.references
    sums = partial(_sums_by_unit, substrate if drawn else np.arange(len(returns)))
    counts = sums(np.ones(len(returns)))
    rng = np.random.default_rng(seed)
    statistics: dict[str, tuple[Callable[..., np.ndarray], list[np.ndarray]]] = {
        "return_mean": (_mean, [sums(returns), counts]),
        "margin_over_constant": (_margin, [sums(returns), sums(references.constant), counts]),
        "fraction_of_feedback": (_fraction, [sums(returns), sums(references.feedback)]),
    }
    scores: dict[str, float] = {}
    for name, (statistic, columns) in statistics.items():
        scores[f"{name}_held_out_low"], scores[f"{name}_held_out_high"] = bootstrap_interval(
            columns, statistic, rng, config.evaluate.bootstrap_samples
        )
    return scores


def _sums_by_unit(
    unit: Int64[np.ndarray, " colony"], values: Float[np.ndarray, " colony"]
) -> Float[np.ndarray, " unit"]:
    """Sums over the colonies of each unit that is resampled."""
    return np.bincount(np.unique(unit, return_inverse=True)[1], values)


def _mean(returns: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
    return returns.sum(axis) / counts.sum(axis)


def _margin(returns: np.ndarray, constant: np.ndarray, counts: np.ndarray, axis: int) -> np.ndarray:
    reference = _mean(constant, counts, axis)
    return (_mean(returns, counts, axis) - reference) / np.maximum(np.abs(reference), TINY)


def _fraction(returns: np.ndarray, feedback: np.ndarray, axis: int) -> np.ndarray:
    return returns.sum(axis) / feedback.sum(axis)
