"""a common start -> beliefs: each arm asks its own questions, transition by transition, and learns from the answers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8
from torch import Tensor

from quatrain.envs.vector_field.policies import PolicyState
from quatrain.envs.vector_field.world import EnvState, draw, step
from quatrain.frameworks.torch import packing, threads
from quatrain.models.active_dynamics import planner, records
from quatrain.models.active_dynamics import state as training_state
from quatrain.models.active_dynamics.acquisition import scorer
from quatrain.models.active_dynamics.collect import Dataset, check
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig
from quatrain.models.active_dynamics.planner import Plan
from quatrain.models.active_dynamics.state import Met, Trial
from quatrain.progress import Progress
from quatrain.replay.windows import WindowRing

HEADLINE = ("monitor/field_nrmse", "innovation_nll")
WEIGHTS = ("params/", "decoder/")
to_arrays = packing.to_arrays


class State(NamedTuple):
    """Everything that changes while learning, of all rows: arm by arm, of each arm all replicates.

    params: what the family learns (a belief; networks). decoder: of channels, where it was learned from the warm-up.
    further: what else the family needs to go on. snapshots: weights at `checkpoint_steps`, 0 where these are to come.
    gained: nats of information about weights, at the last of them.
    """

    params: Any
    decoder: Any
    further: Any
    environment: EnvState
    held: dict[str, PolicyState]
    plan: Plan
    generators: dict[str, UInt8[Tensor, " state"]]
    replay: WindowRing
    path: Float[Tensor, "row transition d"]
    snapshots: dict[str, Float[Tensor, "checkpoint row *axes"]]
    gained: Float64[Tensor, " row"]
    transitions: Int64[Tensor, ""]


def advance(trial: Trial) -> dict[str, Float[Tensor, " row"]]:
    """One transition of all rows: act, see, believe, improve. Changes the trial in place.

    In the warm-up actions are given, and nothing is improved.
    """
    warm = trial.transitions < trial.config.collect.warmup
    met = trial.warm_up() if warm else met_by(trial, chosen(trial))
    trial.write(met)
    noted = {"innovation_nll": trial.rows.observe(met.seen)}
    if not warm:
        trial.rows.improve(trial.replay)
    trial.environment = met.state
    trial.transitions += 1
    if trial.transitions in trial.checkpoints:
        trial.keep()
    outside = met.final_x.norm(dim=1) > trial.config.env.region_radius
    return (
        noted
        | trial.rows.told
        | {"outside_region": outside.float(), "truncations": met.seen.truncated.float()}
    )


def chosen(trial: Trial) -> Float[Tensor, "row action"]:
    """What each arm does next."""
    actions = []
    for arm in trial.config.train.arms:
        if arm == "active":
            actions.append(planned(trial))
        else:
            actions.append(trial.habit(arm))
    return torch.cat(actions)


def planned(trial: Trial) -> Float[Tensor, "replicate action"]:
    """The active arm's decision; it plans anew when `replan_every` transitions have passed."""
    config, age = trial.config.train, trial.plan_age
    if age == 0:
        surrogate = trial.rows.surrogate(trial.rows_of("active"))
        score = scorer(surrogate, config.acquisition, config.planner.hold)
        bound = trial.config.env.action_bound
        trial.plan = planner.replan(
            config.planner, bound, score, trial.plan, trial.generators["planner"]
        )
    return planner.decision(config.planner, trial.plan, age)


def met_by(trial: Trial, action: Float[Tensor, "row action"]) -> Met:
    """What the environment answers."""
    draws = draw(trial.world, trial.config.seeds, trial.generators_of("process"))
    made = step(trial.world, trial.environment, action, draws, trial.generators_of("counts"))
    return trial.met(action, made)


def init_state(config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> State:
    """At the common start, before the first transition of the warm-up."""
    return snapshot(training_state.fresh(config, dataset, seed))


def snapshot(trial: Trial) -> State:
    """As the trial is now, in tensors that stay so."""
    parts = training_state.state_of(trial)
    return State(**{name: parts[name] for name in State._fields})


def train(
    config: ActiveDynamicsConfig, dataset: Dataset, seed: int, state: State | None = None
) -> Iterator[Progress]:
    """Learn until `train.transitions` are met, from `learner` if one is given; a yield every `record_every` of them.

    Raises:
        DatasetMismatch: the dataset was collected for another config.
        TrainingDiverged: something is not finite; nothing is yielded of the transitions since the last yield.
    """
    check(config, dataset)
    trial = (
        training_state.fresh(config, dataset, seed)
        if state is None
        else training_state.restored(config, dataset, state)
    )
    while (done := trial.transitions) < config.train.transitions:
        count = min(config.train.record_every, config.train.transitions - done)
        with threads.single_threaded(if_small=True):
            metrics = records.metrics_of(trial, [advance(trial) for _ in range(count)])
        yield Progress(done + count, snapshot(trial), metrics)


def from_arrays(
    config: ActiveDynamicsConfig, dataset: Dataset, arrays: dict[str, np.ndarray]
) -> State:
    """The inverse of `pack`.

    Raises:
        ValueError: names, shapes or dtypes are not those of a learner of this config.
    """
    return packing.from_arrays(init_state(config, dataset, 0), arrays)
