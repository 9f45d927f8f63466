"""warm-up rollouts -> beliefs: each arm selects actions and learns, transition by transition."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.fields import region_grid
from quatrain.errors import warn
from quatrain.frameworks.torch import from_template, single_threaded
from quatrain.frameworks.torch import to_arrays as to_arrays
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.collect import check
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.state import TrainingState, by_arm, learners_of, planned_share
from quatrain.models.active_dynamics.state import init_state as init_own
from quatrain.models.active_dynamics.user_env import learn
from quatrain.progress import Progress, TrainingDiverged
from quatrain.replay import windows

# Stride over the region's grid of the points that are monitored while learning.
MONITOR_STRIDE = 4
# Share of planned actions of the active arm below which a training warns.
LEAST_PLANNED = 0.5
WEIGHTS = ("params/", "decoder/")
Metrics = dict[str, np.ndarray]


def headline(config: ActiveDynamicsConfig) -> tuple[str, str]:
    return learn.HEADLINE if config.brings_env else ("monitor/field_nrmse", "innovation_nll")


def init_state(config: ActiveDynamicsConfig, dataset: Any, seed: int) -> Any:
    """Returns the state before the first transition of the warm-up, of a user's system after it."""
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return learn.init_state(config, dataset, seed)
    return init_own(config, dataset, seed)


def train(
    config: ActiveDynamicsConfig, dataset: Any, seed: int, state: Any = None
) -> Iterator[Progress]:
    """Trains for `train.transitions`, from `state` if given; yields once per `train.record_every`.

    Raises:
        DatasetMismatch: the dataset was collected for another config.
        TrainingDiverged: something is not finite; raised before that state is yielded.

    Warns if less than half of the active arm's actions could be planned.
    """
    check(config, dataset)
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        yield from learn.train(config, dataset, seed, state)
        return
    if state is None:
        state = init_state(config, dataset, seed)
    training = TrainingState(config, dataset, state)
    while training.transitions < config.train.transitions:
        remaining = config.train.transitions - training.transitions
        metrics = advance_by(training, min(config.train.record_every, remaining))
        yield Progress(training.transitions, training.to_state(), metrics)
    _warn_if_plans_were_held_back(training)


def update(config: ActiveDynamicsConfig, dataset: Any, state: Any) -> tuple[Any, Metrics]:
    """Returns the state after one transition of every learner and what is learned from it.

    The given state is not changed. The metrics are those of a yield of `train` with
    `record_every` 1, and repeated calls give the same bits as `train`.

    Raises:
        TrainingDiverged: something is not finite.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return learn.update(config, dataset, state)
    training = TrainingState(config, dataset, state)
    metrics = advance_by(training, 1)
    return training.to_state(), metrics


@single_threaded(if_small=True)
def advance_by(training: TrainingState, transitions: int) -> Metrics:
    """Changes `training` in place by some transitions, and returns their metrics.

    Raises:
        TrainingDiverged: something is not finite.
    """
    return metrics_of(training, [advance(training) for _ in range(transitions)])


def advance(training: TrainingState) -> dict[str, Float[Tensor, " learner"]]:
    """Changes `training` in place by one transition of all learners: act, observe, improve.

    In the warm-up the transitions are those of the dataset, and nothing is improved.

    Returns: metrics of this transition.
    """
    config = training.config
    learner = training.learner
    planned_before = training.planned.clone()
    warm = training.transitions < config.collect.warmup
    if warm:
        transition = training.replay_warmup()
    else:
        transition = training.system.step(select_actions(training))
    windows.write(training.replay, *transition[:3], config.train.seq_vae.length)
    training.path[:, training.transitions] = transition.final_x
    innovation = learner.observe(transition)
    if not warm:
        learner.improve(training.replay)
    training.transitions += 1
    if training.transitions in training.checkpoints:
        training.save_checkpoint()
    outside = transition.final_x.norm(dim=1) > config.env.region_radius
    return {
        "innovation_nll": innovation,
        **learner.last_update_metrics,
        "outside_region": outside.float(),
        "planned": (training.planned - planned_before).float(),
        "truncations": transition.truncated.float(),
    }


def select_actions(training: TrainingState) -> Float[Tensor, "learner action"]:
    """Returns planned actions of the active arm, and open-loop ones of the others."""
    config = training.config
    actions = []
    for arm in config.train.arms:
        hold = config.train.policies.hold(arm)
        generator = training.generators[f"policy_{arm}"]
        state = training.policy_states[arm]
        state = policies.act(arm, config.env.action_bound, hold, state, generator)
        training.policy_states[arm] = state
        action = state.action
        actions.append(active_action(training, action) if arm == "active" else action)
    return torch.cat(actions)


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
    warn(
        f"active_dynamics planned only {share:.0%} of the actions of arm active; the others were"
        " random, because the effect of actions on encoded states was not known within"
        f" max_misalignment {config.train.seq_vae.max_misalignment:g}; raise"
        " active_dynamics.train.transitions or env.action_bound"
    )


# Records.


def metrics_of(
    training: TrainingState, transitions: Sequence[Mapping[str, Float[Tensor, " learner"]]]
) -> dict[str, Float[np.ndarray, "..."]]:
    """Returns one entry for the transitions of a yield: `NAME.ARM` of each arm, and `NAME` of all.

    Truncations are summed over the transitions; all others are averaged.

    Raises:
        TrainingDiverged: something is not finite.
    """
    columns = {
        name: torch.stack([metrics[name] for metrics in transitions]).double()
        for name in transitions[0]
    }
    check_finite(training, columns)
    reduced = {name: column.mean(0) for name, column in columns.items()}
    reduced["truncations"] = columns["truncations"].sum(0)
    reduced |= {"information_gained": training.information} | _field_metrics(training)
    return by_arm(training.config.train.arms, reduced)


@torch.no_grad()
def _field_metrics(training: TrainingState) -> dict[str, Float[Tensor, " learner"]]:
    learner = training.learner
    points = region_grid(training.config.env.region_radius, training.config.env.d)[::MONITOR_STRIDE]
    truth = training.world.field(points).double()
    points = points.double()
    alignment = learner.alignment(learner.weights, training.dataset.held_out)
    z = alignment.to_latent(points.expand(training.config.learners, -1, -1))
    field = alignment.to_field(learner.moments(z))
    error = (field.mean - truth).square().sum((1, 2)) / truth.square().sum()
    return {"field_sd": field.variance.mean((1, 2)).sqrt(), "monitor/field_nrmse": error.sqrt()}


def check_finite(
    training: TrainingState, columns: Mapping[str, Float[Tensor, "transition learner"]]
) -> None:
    """Raises if a metric, or the state at the end of a yield, is not finite.

    Raises:
        TrainingDiverged: names the transition, the metric or tensor, the learner, and the keys to
            lower.
    """
    remedy = training.learner.REMEDY
    for name, column in columns.items():
        broken = (~column.isfinite()).nonzero()
        if len(broken):
            place, learner = broken[0].tolist()
            step = training.transitions - len(column) + place + 1
            where = _where(training, step, name, learner)
            raise TrainingDiverged(f"{where} is {column[place, learner]:g}; {remedy}")
    tensors = {**training.learner.to_state(), "information_gained": training.information}
    for name, index in _not_finite(tensors, training.config.learners):
        where = _where(training, training.transitions, name, index)
        raise TrainingDiverged(f"{where} is not finite; {remedy}")


def _not_finite(
    tree: Any, learners: int, name: str = "", learner: int | None = None
) -> Iterator[tuple[str, int | None]]:
    """Yields path and learner of each tensor that is not finite.

    The path leaves out the places of learners; the learner is None if the tensor has no such axis.
    """
    if isinstance(tree, Tensor):
        broken = ~tree.isfinite()
        if broken.any():
            if learner is None and broken.shape[:1] == (learners,):
                learner = int(broken.view(learners, -1).any(1).nonzero()[0])
            yield name, learner
    elif hasattr(tree, "_asdict"):
        yield from _not_finite(tree._asdict(), learners, name, learner)
    elif isinstance(tree, dict):
        for key, child in tree.items():
            yield from _not_finite(child, learners, f"{name}/{key}" if name else key, learner)
    elif tree is not None:
        by_learner = len(tree) == learners and len({type(child) for child in tree}) == 1
        for place, child in enumerate(tree):
            yield from _not_finite(child, learners, name, place if by_learner else learner)


def _where(training: TrainingState, step: int, name: str, learner: int | None) -> str:
    stopped = f"active_dynamics stopped at transition {step}: {name}"
    if learner is None:
        return stopped
    arm, replicate = divmod(learner, training.config.seeds)
    return f"{stopped} of learner {training.config.train.arms[arm]}/{replicate}"


def from_arrays(config: ActiveDynamicsConfig, dataset: Any, arrays: dict[str, np.ndarray]) -> Any:
    """Returns the state that these arrays hold; the inverse of `to_arrays`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a state of this config.
    """
    return from_template(init_state(config, dataset, 0), arrays)
