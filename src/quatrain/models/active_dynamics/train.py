"""warm-up rollouts -> beliefs: each arm selects actions and learns, transition by transition."""

import warnings
from collections.abc import Iterator

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field.world import draw, step
from quatrain.frameworks.torch import packing, threads
from quatrain.models.active_dynamics import planner, records
from quatrain.models.active_dynamics.acquisition import scorer
from quatrain.models.active_dynamics.collect import Dataset, check
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Observation
from quatrain.models.active_dynamics.state import (
    State,
    StepRecord,
    TrainingState,
    learners_of,
    planned_share,
)
from quatrain.progress import Progress

# Share of planned actions of the active arm below which a training warns.
LEAST_PLANNED = 0.5
WEIGHTS = ("params/", "decoder/")
to_arrays = packing.to_arrays
Metrics = dict[str, np.ndarray]


def headline(config: ActiveDynamicsConfig) -> tuple[str, str]:
    return "monitor/field_nrmse", "innovation_nll"


def init_state(config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> State:
    return TrainingState.init(config, dataset, seed).to_state()


def train(
    config: ActiveDynamicsConfig,
    dataset: Dataset,
    seed: int,
    state: State | None = None,
) -> Iterator[Progress]:
    """Trains for `train.transitions`, from `state` if given; yields once per `train.record_every`.

    Raises:
        DatasetMismatch: the dataset was collected for another config.
        TrainingDiverged: something is not finite; raised before that state is yielded.

    Warns if less than half of the active arm's actions could be planned.
    """
    check(config, dataset)
    if state is None:
        training = TrainingState.init(config, dataset, seed)
    else:
        training = TrainingState.from_state(config, dataset, state)
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
    training = TrainingState.from_state(config, dataset, state)
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
    warm = training.transitions < training.config.collect.warmup
    planned_before = training.planned.clone()
    if warm:
        record = training.warmup_step()
    else:
        record = step_environment(training, select_actions(training))
    training.write(record)
    metrics = {"innovation_nll": training.learner.observe(record.observed)}
    if not warm:
        training.learner.improve(training.replay)
    training.environment = record.environment
    training.transitions += 1
    if training.transitions in training.checkpoints:
        training.save_checkpoint()
    metrics |= training.learner.last_update_metrics
    outside = record.final_x.norm(dim=1) > training.config.env.region_radius
    metrics["outside_region"] = outside.float()
    metrics["planned"] = (training.planned - planned_before).float()
    metrics["truncations"] = record.observed.truncated.float()
    return metrics


def select_actions(training: TrainingState) -> Float[Tensor, "learner action"]:
    return torch.cat(
        [
            active_action(training) if arm == "active" else training.exploration_action(arm)
            for arm in training.config.train.arms
        ]
    )


def active_action(training: TrainingState) -> Float[Tensor, "replicate action"]:
    """Returns planned actions, random ones for replicates that cannot plan, and counts both."""
    active = learners_of(training.config, "active")
    can_plan = training.learner.can_plan(active)
    training.planned[active] += can_plan
    random = training.exploration_action("active")
    return torch.where(can_plan[:, None], planned_action(training), random)


def planned_action(training: TrainingState) -> Float[Tensor, "replicate action"]:
    """Returns the next action of the active arm; plans anew every `replan_every` transitions."""
    config = training.config.train
    if training.plan_age == 0:
        surrogate = training.learner.surrogate(learners_of(training.config, "active"))
        training.plan = planner.replan(
            config.planner,
            training.config.env.action_bound,
            scorer(surrogate, config.acquisition, config.planner.hold),
            training.plan,
            training.generators["planner"],
        )
    return planner.decision(config.planner, training.plan, training.plan_age)


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


def step_environment(
    training: TrainingState,
    action: Float[Tensor, "learner action"],
) -> StepRecord:
    """Makes one transition of the environment; actions are clipped to its bound."""
    world = training.world
    stepped = step(
        world,
        training.environment,
        action,
        draw(world, training.config.seeds, training.generators_of("process")),
        training.generators_of("counts"),
    )
    bound = training.config.env.action_bound
    action = action.clamp(-bound, bound)
    observed = Observation(
        action=action,
        control=action @ world.control.T,
        observation=stepped.final_observation,
        truncated=stepped.truncated,
        reset_observation=stepped.observation,
    )
    return StepRecord(observed, stepped.final_x, stepped.state)


def from_arrays(
    config: ActiveDynamicsConfig,
    dataset: Dataset,
    arrays: dict[str, np.ndarray],
) -> State:
    """Returns the state that these arrays hold; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)
