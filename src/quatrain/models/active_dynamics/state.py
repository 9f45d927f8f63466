"""saved state <-> objects that work on it: environment, policies, generators, and the learners of a family."""

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
MONITOR_STRIDE = 4
"""Stride over the region's grid of the points that are monitored while learning."""


class State(NamedTuple):
    """Everything that changes while learning, of all learners: arm by arm, all replicates of each.

    params: what the family learns (a belief; networks). decoder: of channels, if learned from the
    warm-up. family_state: what else the family needs to continue. snapshots: weights at
    `checkpoint_steps`, 0 at later ones. information: nats gained about the weights, at the last
    checkpoint.
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
    transitions: int

    @classmethod
    def init(cls, config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> "TrainingState":
        """Returns the state before the first transition of the warm-up."""
        environment, plan, family, arms = SeedSequence(seed).spawn(4)
        generators = _generators(config, environment, plan, arms)
        learner = FAMILIES[config.network.family].init(config, dataset, family)
        size = config.env.action_size
        length = config.train.transitions
        starts = torch.tensor(dataset.train.states[:, 0]).repeat(len(config.train.arms), 1)
        count = len(checkpoint_steps(config))
        return cls(
            **_constant_parts(config, dataset),
            learner=learner,
            environment=EnvState(starts, torch.zeros(len(starts), dtype=torch.int64)),
            policy_states={
                arm: policies.init_policy_state(config.seeds, size, generators[f"policy_{arm}"])
                for arm in config.train.arms
                if arm != "active"
            },
            plan=planner.first_plan(config.train.planner, config.seeds, size),
            generators=generators,
            replay=windows.allocate(config.learners, length, config.env.observation.channels, size),
            path=torch.zeros(config.learners, length, config.env.d),
            snapshots={
                name: torch.zeros(count, *value.shape) for name, value in learner.weights.items()
            },
            information=torch.zeros(config.learners, dtype=torch.float64),
            transitions=0,
        )

    @classmethod
    def from_state(
        cls, config: ActiveDynamicsConfig, dataset: Dataset, state: State
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
            transitions=torch.tensor(self.transitions),
        )

    @property
    def plan_age(self) -> int:
        """Transitions since the active arm planned; it plans first at the end of the warm-up."""
        active = self.transitions - self.config.collect.warmup
        return active % self.config.train.planner.replan_every

    def generators_of(self, purpose: str) -> list[Generator]:
        """Returns the generators of a purpose, one for each arm."""
        return [self.generators[f"{purpose}_{arm}"] for arm in self.config.train.arms]

    def exploration_action(self, arm: str) -> Float[Tensor, "replicate action"]:
        """Draws the next action of an arm that does not plan."""
        policy_state = policies.act(
            arm,
            policy_spec(self.config),
            self.policy_states[arm],
            self.transitions,
            self.generators[f"policy_{arm}"],
        )
        self.policy_states[arm] = policy_state
        return policy_state.action

    def warmup_step(self) -> StepRecord:
        """Returns the next transition of the warm-up, which is the same for all arms."""
        arms = len(self.config.train.arms)
        time = self.transitions

        def at(column: Tensor, moment: int) -> Tensor:
            return column[:, moment].repeat(arms, *[1] * (column.ndim - 2))

        warmup = self.warmup
        action = at(warmup.actions, time)
        truncated = at(warmup.truncated, time)
        observed = Observation(
            action=action,
            control=action @ self.world.control.T,
            observation=at(warmup.next_observations, time),
            truncated=truncated,
            reset_observation=at(warmup.observations, time + 1),
        )
        age = torch.where(truncated, 0, self.environment.age + 1)
        environment = EnvState(at(warmup.states, time + 1), age)
        return StepRecord(observed, at(warmup.next_states, time), environment)

    def write(self, record: StepRecord) -> None:
        """Appends a transition to the replay and to the path."""
        observed = record.observed
        entry = windows.Entry(observed.observation, observed.action, observed.truncated)
        windows.write(self.replay, entry, self.config.train.seq_vae.length)
        self.path[:, self.transitions] = record.final_x

    def save_checkpoint(self) -> None:
        """Copies the current weights into `snapshots`."""
        place = self.checkpoints[self.transitions]
        for name, value in self.learner.weights.items():
            self.snapshots[name][place] = value
        self.information = self.learner.information().double()


def _constant_parts(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, Any]:
    world = world_of(config, dataset)
    points = region_grid(config.env.region_radius, config.env.d)[::MONITOR_STRIDE]
    warmup = WarmupTensors(*map(torch.from_numpy, dataset.train))
    return {
        "config": config,
        "dataset": dataset,
        "warmup": windows.to_device(warmup, torch.get_default_device()),
        "world": world,
        "monitor": MonitorGrid(points.double(), world.field(points).double()),
        "checkpoints": {step: place for place, step in enumerate(checkpoint_steps(config))},
    }


def _generators(
    config: ActiveDynamicsConfig,
    environment: SeedSequence,
    plan: SeedSequence,
    arms: SeedSequence,
) -> dict[str, Generator]:
    """Returns one per purpose and arm; environments draw alike in all arms, which are compared in pairs."""
    process, counts = environment.spawn(2)
    generators = {"planner": generator_from_seed(plan)}
    for arm, policy in zip(ARMS, arms.spawn(len(ARMS)), strict=True):
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


def learners_of(config: ActiveDynamicsConfig, arm: str) -> slice:
    """Returns the places of an arm's learners."""
    first = config.train.arms.index(arm) * config.seeds
    return slice(first, first + config.seeds)


def policy_spec(config: ActiveDynamicsConfig) -> PolicySpec:
    """Returns the parameters of policies that do not plan."""
    policy = config.train.policies
    return PolicySpec(
        config.env.action_bound,
        config.env.dt,
        config.train.transitions,
        policy.step_hold,
        policy.prbs_hold,
        policy.chirp,
    )


def cloned(tree: Any) -> Any:
    """Returns the same nest of tuples and dictionaries around copies of its tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {name: cloned(child) for name, child in tree.items()}
    children = map(cloned, tree)
    return type(tree)(*children) if hasattr(tree, "_fields") else tuple(children)
