"""learner, held-out colonies -> scores: where the policy stands between the best constant action and a controller."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int64

from quatrain.baselines import Gated
from quatrain.envs.colony.dynamics import World, make_world
from quatrain.envs.colony.episodes import episodes
from quatrain.envs.colony.plates import EXPONENTIAL, LINEAR, Plates
from quatrain.envs.colony.policies import ColonyPolicy
from quatrain.envs.colony.rules import REASONS, SUCCESS
from quatrain.models.actor_critic.collect import Dataset, Starts, colonies_of
from quatrain.models.actor_critic.config import ActorCriticConfig
from quatrain.models.actor_critic.ppo.acting import drawn_policy, mean_policy
from quatrain.models.actor_critic.ppo.agent import actor_of
from quatrain.models.actor_critic.train import State
from quatrain.statistics import aggregate_seeds, bootstrap_interval

FLOORS, CEILINGS = ("random_return", "constant_return"), ("feedback_return",)
GATED = (
    Gated("return_mean", "higher", 0.3, {}, FLOORS, CEILINGS),
    Gated("margin_over_constant", "higher", 0.1, {"default": 0.25}),
    Gated("fraction_of_feedback", "higher", 0.03, {"default": 0.95}),
    Gated("success_rate", "higher", 0.02, {}),
    Gated("size_rmse", "lower", 1.0, {}),
)
SETTLED = 4
"""Steps after which a colony's size counts."""
KINDS = {"linear": LINEAR, "exponential": EXPONENTIAL}
TINY = 1e-6


class Outcome(NamedTuple):
    """One episode of each colony. returns: undiscounted. What is traced stands after each step, NaN after the end."""

    returns: Float[np.ndarray, " colony"]
    lengths: Int64[np.ndarray, " colony"]
    reasons: Int64[np.ndarray, " colony"]
    components: Float[np.ndarray, "colony component"]
    n: Float[np.ndarray, "step colony"]
    centroid: Float[np.ndarray, "step colony 2"]
    action: Float[np.ndarray, "step colony parameter"]


def evaluate(
    config: ActorCriticConfig, state: State, dataset: Dataset, seed: int
) -> dict[str, float]:
    """Metrics of actor_critic; with several seeds means, and for what is judged also sd and 95 % interval over seeds.

    Without its spread the policy plays one episode with each held-out colony; returns are undiscounted. Margin and
    fraction compare its mean return with those of the best constant action and of the feedback controller on the same
    colonies; of one seed their intervals are bootstrapped over colonies, in pairs.
    """
    outcomes = learned(config, state, dataset)
    of_learners = [
        _scores(config, outcome, dataset) | _beyond(config, state, place, dataset, seed)
        for place, outcome in enumerate(outcomes)
    ]
    scores = aggregate_seeds(of_learners, [gated.metric for gated in GATED])
    floors = dataset.held_out.floors
    for name, values in (
        ("random", floors.random),
        ("constant", floors.constant),
        ("feedback", floors.feedback),
    ):
        scores[f"{name}_return"] = float(values.mean())
    if config.seeds == 1:
        scores |= _sureness(config, outcomes[0].returns, dataset, seed)
    return {name: float(value) for name, value in scores.items()}


def learned(config: ActorCriticConfig, state: State, dataset: Dataset) -> list[Outcome]:
    """The policy of each seed with the held-out colonies."""
    world = make_world(config.env.rules, dataset.held_out.plates)
    found = []
    for seed in state.seeds:
        act = mean_policy(actor_of(config, world, seed))
        found.append(played(world, dataset.held_out.colonies, act))
    return found


def played(world: World, starts: Starts, act: ColonyPolicy) -> Outcome:
    """One episode of each colony under any policy."""
    count, steps, rules = len(starts.n), world.rules.max_steps, world.rules
    components = np.zeros((count, len(rules.reward)))
    n, centroid, action = (np.full((steps, count, *axes), np.nan) for axes in ((), (2,), (5,)))
    lengths, reasons = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for time, moment in enumerate(episodes(world, colonies_of(rules, starts), act)):
        rows, after = moment.indices.numpy(force=True), moment.transition.after
        components[rows] += moment.components.numpy(force=True)
        n[time, rows] = after.n.numpy(force=True)
        centroid[time, rows] = after.centroid.numpy(force=True)
        action[time, rows] = moment.transition.action.numpy(force=True)
        lengths[rows], reasons[rows] = time + 1, moment.transition.reason.numpy(force=True)
    last = int(lengths.max(initial=1))
    returns = components @ np.array([weight for _, weight in rules.reward])
    return Outcome(returns, lengths, reasons, components, n[:last], centroid[:last], action[:last])


def ends(outcome: Outcome) -> Float[np.ndarray, "colony 2"]:
    """Where each colony's centroid was in the end."""
    return outcome.centroid[outcome.lengths - 1, np.arange(len(outcome.lengths))]


def _scores(config: ActorCriticConfig, outcome: Outcome, dataset: Dataset) -> dict[str, Any]:
    """The metrics of one learner with the held-out colonies."""
    env, held_out = config.env, dataset.held_out
    won, mean = outcome.reasons == SUCCESS, outcome.returns.mean()
    kind = held_out.plates.kind[held_out.colonies.substrate]
    chance, constant, feedback = (float(values.mean()) for values in held_out.floors[:3])
    return {
        "return_mean": mean,
        "margin_over_constant": (mean - constant) / max(abs(constant), TINY),
        "fraction_of_feedback": mean / feedback if feedback else np.nan,
        "normalised_score": (mean - chance) / (feedback - chance) if feedback != chance else np.nan,
        "success_rate": won.mean(),
        "steps_to_goal": outcome.lengths[won].mean() if won.any() else np.nan,
        "final_progress": np.clip(ends(outcome)[:, 0] / (env.width - 1), 0, 1).mean(),
        "size_rmse": _root_mean_square(outcome.n[SETTLED - 1 :] - env.target_nodes),
        "lane_rms": _root_mean_square(outcome.centroid[..., 1] - env.height / 2),
        "nodes_mean": np.nanmean(outcome.n),
        "length_mean": outcome.lengths.mean(),
        **{
            f"reason/{name}": (outcome.reasons == code).mean()
            for code, name in enumerate(REASONS)
            if code
        },
        **{
            f"return_{name}": outcome.returns[kind == code].mean()
            for name, code in KINDS.items()
            if code in kind
        },
    }


def _root_mean_square(deviation: np.ndarray) -> float:
    """Over all steps of all colonies; NaN where there is none."""
    found = deviation[np.isfinite(deviation)]
    return float(np.sqrt(np.square(found).mean())) if len(found) else np.nan


def _beyond(
    config: ActorCriticConfig, state: State, place: int, dataset: Dataset, seed: int
) -> dict[str, Any]:
    """The policy with its spread, and without it on plates outside the range that it was trained on."""
    held_out, rules, own = dataset.held_out, config.env.rules, state.seeds[place]

    def outcome(plates: Plates, starts: Starts, drawn: bool) -> Outcome:
        world = make_world(rules, plates)
        actor = actor_of(config, world, own)
        draws = torch.Generator(device=torch.get_default_device()).manual_seed(seed)
        return played(world, starts, drawn_policy(actor, draws) if drawn else mean_policy(actor))

    found = {
        "stochastic_return_mean": outcome(held_out.plates, held_out.colonies, True).returns.mean()
    }
    if config.collect.n_outside:
        outside = outcome(held_out.outside, held_out.colonies_outside, False)
        found |= {"outside/return_mean": outside.returns.mean()}
        found |= {"outside/success_rate": (outside.reasons == SUCCESS).mean()}
    return found


def _sureness(
    config: ActorCriticConfig, returns: np.ndarray, dataset: Dataset, seed: int
) -> Mapping[str, float]:
    """Intervals over colonies."""
    floors, rng = dataset.held_out.floors, np.random.default_rng(seed)
    constant, feedback = floors.constant.astype(float), floors.feedback.astype(float)
    scores: dict[str, float] = {}
    for name, columns, statistic in (
        ("return_mean", [returns], lambda own, axis: own.mean(axis)),
        ("margin_over_constant", [returns, constant], _margin),
        (
            "fraction_of_feedback",
            [returns, feedback],
            lambda own, other, axis: own.mean(axis) / other.mean(axis),
        ),
    ):
        low, high = bootstrap_interval(columns, statistic, rng, config.evaluate.bootstrap_samples)
        scores |= {f"{name}_low": low, f"{name}_high": high}
    return scores


def _margin(own: np.ndarray, constant: np.ndarray, axis: int) -> np.ndarray:
    other = constant.mean(axis)
    return (own.mean(axis) - other) / np.maximum(np.abs(other), TINY)
