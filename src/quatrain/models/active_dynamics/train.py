"""warm-up rollouts -> beliefs: each arm selects actions and learns, transition by transition."""

import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field import policies
from quatrain.frameworks.torch import packing, threads
from quatrain.models.active_dynamics import planner, records
from quatrain.models.active_dynamics.collect import Dataset, check
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.state import (
    State,
    TrainingState,
    init_state,
    learners_of,
    planned_share,
)
from quatrain.progress import Progress
from quatrain.replay import windows

# Share of planned actions of the active arm below which a training warns.
LEAST_PLANNED = 0.5
WEIGHTS = ("params/", "decoder/")
to_arrays = packing.to_arrays
Metrics = dict[str, np.ndarray]


def headline(config: ActiveDynamicsConfig) -> tuple[str, str]:
    return "monitor/field_nrmse", "innovation_nll"


def train(
    config: ActiveDynamicsConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Trains for `train.transitions`, from `state` if given; yields once per `train.record_every`.

    Raises:
        DatasetMismatch: the dataset was collected for another config.
        TrainingDiverged: something is not finite; raised before that state is yielded.

    Warns if less than half of the active arm's actions could be planned.
    """
    check(config, dataset)
    if state is None:
        state = init_state(config, dataset, seed)
    training = TrainingState(config, dataset, state)
    while training.transitions < config.train.transitions:
        remaining = config.train.transitions - training.transitions
        metrics = advance_by(training, min(config.train.record_every, remaining))
        yield Progress(training.transitions, training.to_state(), metrics)
    _warn_if_plans_were_held_back(training)


def update(config: ActiveDynamicsConfig, dataset: Dataset, state: State) -> tuple[State, Metrics]:
    """Returns the state after one transition of every learner and what is learned from it.

    The given state is not changed. The metrics are those of a yield of `train` with
    `record_every` 1, and repeated calls give the same bits as `train`.

    Raises:
        TrainingDiverged: something is not finite.
    """
    training = TrainingState(config, dataset, state)
    metrics = advance_by(training, 1)
    return training.to_state(), metrics


@threads.single_threaded(if_small=True)
def advance_by(training: TrainingState, transitions: int) -> Metrics:
    """Changes `training` in place by some transitions, and returns their metrics.

    Raises:
        TrainingDiverged: something is not finite.
    """
    return records.metrics_of(training, [advance(training) for _ in range(transitions)])


def advance(training: TrainingState) -> dict[str, Float[Tensor, " learner"]]:
    """Changes `training` in place by one transition of all learners: act, observe, improve.

    In the warm-up the transitions are those of the dataset, and nothing is improved.

    Returns: metrics of this transition.
    """
    config = training.config
    learner = training.learner
    planned_before = training.planned.clone()
    warm = training.is_warming_up
    if warm:
        transition = training.replay_warmup()
    else:
        transition = training.system.step(select_actions(training))
    windows.write(training.replay, transition, config.train.seq_vae.length)
    training.path[:, training.transitions] = training.system.final_x
    metrics = {"innovation_nll": learner.observe(transition)}
    if not warm:
        learner.improve(training.replay)
    training.transitions += 1
    if training.transitions in training.checkpoints:
        training.save_checkpoint()
    outside = training.system.final_x.norm(dim=1) > config.env.region_radius
    return (
        metrics
        | learner.last_update_metrics
        | {
            "outside_region": outside.float(),
            "planned": (training.planned - planned_before).float(),
            "truncations": transition.truncated.float(),
        }
    )


def select_actions(training: TrainingState) -> Float[Tensor, "learner action"]:
    """Returns planned actions of the active arm, and open-loop ones of the others."""
    actions = []
    for arm in training.config.train.arms:
        action = exploration_action(training, arm)
        actions.append(active_action(training, action) if arm == "active" else action)
    return torch.cat(actions)


def exploration_action(training: TrainingState, arm: str) -> Float[Tensor, "replicate action"]:
    config = training.config
    state = training.policy_states[arm]
    generator = training.generators[f"policy_{arm}"]
    hold = config.train.policies.hold(arm)
    state = policies.act(arm, config.env.action_bound, hold, state, generator)
    training.policy_states[arm] = state
    return state.action


def active_action(
    training: TrainingState, random: Float[Tensor, "replicate action"]
) -> Float[Tensor, "replicate action"]:
    """Returns planned actions, random ones for replicates that cannot plan, and counts both."""
    active = learners_of(training.config, "active")
    can_plan = training.learner.can_plan(active)
    training.planned[active] += can_plan
    age = training.transitions - training.config.collect.warmup
    surrogate = partial(training.learner.surrogate, active)
    rng = training.generators["planner"]
    training.plan = planner.next_plan(training.config, surrogate, training.plan, age, rng)
    planned = planner.decision(training.config.train.planner, training.plan, age)
    return torch.where(can_plan[:, None], planned, random)


def _warn_if_plans_were_held_back(training: TrainingState) -> None:
    config = training.config
    share = planned_share(config, training.planned)
    if share is None or share >= LEAST_PLANNED:
        return
    warnings.warn(
        f"active_dynamics planned only {share:.0%} of the actions of arm active; the others were"
        " random, because the effect of actions on encoded states was not known within"
        f" max_misalignment {config.train.seq_vae.max_misalignment:g}; raise"
        " active_dynamics.train.transitions or env.action_bound",
        stacklevel=2,
    )


def from_arrays(
    config: ActiveDynamicsConfig, dataset: Dataset, arrays: dict[str, np.ndarray]
) -> State:
    """Returns the state that these arrays hold; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)
