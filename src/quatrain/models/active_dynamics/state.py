"""saved state <-> working objects: environment, policies, generators, learners of a family."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, UInt8
from numpy.random import SeedSequence
from torch import Generator, Tensor

from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.policies import PolicySpec, PolicyState
from quatrain.envs.vector_field.world import EnvState, World
from quatrain.frameworks.torch.rng import generator_from_seed, generator_from_state
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.models.active_dynamics.collect import Dataset, world_of
from quatrain.models.active_dynamics.config import ARMS, ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import FieldLearner, Observation
from quatrain.models.active_dynamics.planner import Plan
from quatrain.models.active_dynamics.seq_vae.learner import SeqVaeLearner
from quatrain.replay import windows
from quatrain.replay.windows import WindowRing

FAMILIES: dict[str, type[FieldLearner]] = {
    "bayes_filter": BayesFilterLearner,
    "seq_vae": SeqVaeLearner,
}
# Arm whose actions the active arm takes where nothing can be planned.
FALLBACK = "random"
# Stride over the region's grid of the points that are monitored while learning.
MONITOR_STRIDE = 4


class State(NamedTuple):
    """Holds all that changes while learning, of all learners: arm by arm, all replicates of each.

    params: what the family learns (a belief; networks). decoder: of channels, if learned from the
    warm-up. family_state: what else the family needs to continue. snapshots: weights at
    `checkpoint_steps`, 0 at later ones. information: nats gained about the weights, at the last
    checkpoint. planned: transitions whose action was planned.
    """

    params: Any
    decoder: Any
    family_state: Any
    environment: EnvState
    policy_states: dict[str, PolicyState]
    plan: Plan
    generators: dict[str, UInt8[Tensor, " state"]]
    replay: WindowRing
    path: Float[Tensor, "learner transition d"]
    snapshots: dict[str, Float[Tensor, "checkpoint learner *axes"]]
    information: Float64[Tensor, " learner"]
    planned: Int64[Tensor, " learner"]
    transitions: Int64[Tensor, ""]


class WarmupTensors(NamedTuple):
    """Holds the rollouts that all arms start with (`collect.Rollouts`) as tensors on the device."""

    observations: Float[Tensor, "replicate time_1 obs"]
    next_observations: Float[Tensor, "replicate time obs"]
    actions: Float[Tensor, "replicate time action"]
    states: Float[Tensor, "replicate time_1 d"]
    next_states: Float[Tensor, "replicate time d"]
    truncated: Bool[Tensor, "replicate time"]


class MonitorGrid(NamedTuple):
    """Holds points of the region and the true field there, for metrics only."""

    points: Float[Tensor, "point d"]
    field: Float[Tensor, "point d"]


class StepRecord(NamedTuple):
    """Holds one transition of all learners.

    observed: what learners observe of it. final_x: the state it led to. environment: the state that
    the next transition starts from.
    """

    observed: Observation
    final_x: Float[Tensor, "learner d"]
    environment: EnvState


@dataclass
class TrainingState:
    """Holds all learners with their environment; `train.advance` changes it in place."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    warmup: WarmupTensors
    world: World
    monitor: MonitorGrid
    checkpoints: dict[int, int]
    learner: FieldLearner
    environment: EnvState
    policy_states: dict[str, PolicyState]
    plan: Plan
    generators: dict[str, Generator]
    replay: WindowRing
    path: Float[Tensor, "learner transition d"]
    snapshots: dict[str, Tensor]
    information: Float64[Tensor, " learner"]
    planned: Int64[Tensor, " learner"]
    transitions: int

    @classmethod
    def init(cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> "TrainingState":
        """Returns the state before the first transition of the warm-up."""
        environment, plan, family, arms = SeedSequence(seed).spawn(4)
        generators = _generators(config, environment, plan, arms)
        learner = FAMILIES[config.network.family].init(config, dataset, family)
        starts = torch.tensor(dataset.train.states[:, 0]).repeat(len(config.train.arms), 1)
        return cls(
            **_constant_parts(config, dataset),
            **_empty_records(config, learner),
            learner=learner,
            environment=EnvState(starts, torch.zeros(len(starts), dtype=torch.int64)),
            policy_states={
                arm: policies.init_policy_state(
                    config.seeds,
                    config.env.action_size,
                    generators[f"policy_{arm}"],
                )
                for arm in config.train.arms
            },
            plan=planner.first_plan(
                config.train.planner,
                config.seeds,
                config.env.action_size,
            ),
            generators=generators,
            transitions=0,
        )

    @classmethod
    def from_state(
        cls,
        config: ActiveDynamicsConfig,
        dataset: Dataset,
        state: State,
    ) -> "TrainingState":
        """Returns the working form of a state; the state is not changed."""
        return cls(
            **_constant_parts(config, dataset),
            learner=FAMILIES[config.network.family].from_state(config, dataset, state),
            environment=state.environment,
            policy_states=dict(state.policy_states),
            plan=state.plan,
            generators={
                name: generator_from_state(saved) for name, saved in state.generators.items()
            },
            replay=cloned(state.replay),
            path=state.path.clone(),
            snapshots=cloned(state.snapshots),
            information=state.information,
            planned=state.planned.clone(),
            transitions=int(state.transitions),
        )

    def to_state(self) -> State:
        """Returns copies of all that changes."""
        return State(
            **self.learner.to_state(),
            environment=cloned(self.environment),
            policy_states=cloned(self.policy_states),
            plan=cloned(self.plan),
            generators={name: draws.get_state() for name, draws in self.generators.items()},
            replay=cloned(self.replay),
            path=self.path.clone(),
            snapshots=cloned(self.snapshots),
            information=self.information.clone(),
            planned=self.planned.clone(),
            transitions=torch.tensor(self.transitions),
        )

    @property
    def plan_age(self) -> int:
        """Returns the transitions since the active arm planned, first after the warm-up."""
        active = self.transitions - self.config.collect.warmup
        return active % self.config.train.planner.replan_every

    def generators_of(self, purpose: str) -> list[Generator]:
        return [self.generators[f"{purpose}_{arm}"] for arm in self.config.train.arms]

    def exploration_action(self, arm: str) -> Float[Tensor, "replicate action"]:
        """Returns the next actions of an arm that does not plan, or of the active arm's fallback.

        The fallback draws what the arm of its name draws.
        """
        policy = self.config.train.policies
        spec = PolicySpec(
            self.config.env.action_bound,
            self.config.env.dt,
            self.config.train.transitions,
            policy.step_hold,
            policy.prbs_hold,
            policy.chirp,
        )
        self.policy_states[arm] = policies.act(
            FALLBACK if arm == "active" else arm,
            spec,
            self.policy_states[arm],
            self.transitions,
            self.generators[f"policy_{arm}"],
        )
        return self.policy_states[arm].action

    def warmup_step(self) -> StepRecord:
        """Returns the next transition of the warm-up, which is the same for all arms."""
        time = self.transitions

        def at(column: Tensor, moment: int) -> Tensor:
            return column[:, moment].repeat(
                len(self.config.train.arms),
                *[1] * (column.ndim - 2),
            )

        action = at(self.warmup.actions, time)
        truncated = at(self.warmup.truncated, time)
        return StepRecord(
            observed=Observation(
                action=action,
                control=action @ self.world.control.T,
                observation=at(self.warmup.next_observations, time),
                truncated=truncated,
                reset_observation=at(self.warmup.observations, time + 1),
            ),
            final_x=at(self.warmup.next_states, time),
            environment=EnvState(
                at(self.warmup.states, time + 1),
                torch.where(truncated, 0, self.environment.age + 1),
            ),
        )

    def write(self, record: StepRecord) -> None:
        entry = windows.Entry(
            record.observed.observation,
            record.observed.action,
            record.observed.truncated,
        )
        windows.write(self.replay, entry, self.config.train.seq_vae.length)
        self.path[:, self.transitions] = record.final_x

    def save_checkpoint(self) -> None:
        place = self.checkpoints[self.transitions]
        for name, value in self.learner.weights.items():
            self.snapshots[name][place] = value
        self.information = self.learner.information().double()


def _constant_parts(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, Any]:
    world = world_of(config, dataset)
    points = region_grid(config.env.region_radius, config.env.d)[::MONITOR_STRIDE]
    return {
        "config": config,
        "dataset": dataset,
        "warmup": windows.to_device(
            WarmupTensors(*map(torch.from_numpy, dataset.train)),
            torch.get_default_device(),
        ),
        "world": world,
        "monitor": MonitorGrid(points.double(), world.field(points).double()),
        "checkpoints": {step: place for place, step in enumerate(checkpoint_steps(config))},
    }


def _empty_records(config: ActiveDynamicsConfig, learner: FieldLearner) -> dict[str, Any]:
    checkpoints = len(checkpoint_steps(config))
    return {
        "replay": windows.allocate(
            config.learners,
            config.train.transitions,
            config.env.observation.channels,
            config.env.action_size,
        ),
        "path": torch.zeros(config.learners, config.train.transitions, config.env.d),
        "snapshots": {
            name: torch.zeros(checkpoints, *value.shape) for name, value in learner.weights.items()
        },
        "information": torch.zeros(config.learners, dtype=torch.float64),
        "planned": torch.zeros(config.learners, dtype=torch.int64),
    }


def _generators(
    config: ActiveDynamicsConfig,
    environment: SeedSequence,
    plan: SeedSequence,
    arms: SeedSequence,
) -> dict[str, Generator]:
    """Returns one generator per purpose and arm; environments draw alike in all arms."""
    process, counts = environment.spawn(2)
    generators = {"planner": generator_from_seed(plan)}
    policies_of = dict(zip(ARMS, arms.spawn(len(ARMS)), strict=True))
    for arm in ARMS:
        policy = policies_of[FALLBACK if arm == "active" else arm]
        if arm in config.train.arms:
            generators[f"process_{arm}"] = generator_from_seed(process)
            generators[f"counts_{arm}"] = generator_from_seed(counts)
            generators[f"policy_{arm}"] = generator_from_seed(policy)
    return generators


def checkpoint_steps(config: ActiveDynamicsConfig) -> tuple[int, ...]:
    """Returns the transitions at which weights are saved.

    They are evenly spaced in their logarithm, from the end of the warm-up to the last transition.
    """
    steps = np.geomspace(config.collect.warmup, config.train.transitions, config.train.checkpoints)
    return tuple(np.unique(steps.round().astype(int)).tolist())


def planned_share(config: ActiveDynamicsConfig, planned: Int64[Tensor, " learner"]) -> float | None:
    """Computes the share of planned actions of the active arm; None without that arm."""
    if "active" not in config.train.arms:
        return None
    actions = config.train.transitions - config.collect.warmup
    return float(planned[learners_of(config, "active")].double().mean()) / actions


def learners_of(config: ActiveDynamicsConfig, arm: str) -> slice:
    first = config.train.arms.index(arm) * config.seeds
    return slice(first, first + config.seeds)


def cloned(tree: Any) -> Any:
    """Returns the same nest of tuples and dictionaries around copies of its tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {name: cloned(child) for name, child in tree.items()}
    children = map(cloned, tree)
    return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
