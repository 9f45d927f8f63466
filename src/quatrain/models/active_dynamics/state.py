"""saved state <-> working objects: system, policies, generators, learners of a family."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int64, UInt8
from numpy.random import SeedSequence
from torch import Generator, Tensor
from torch.utils._pytree import tree_map

from quatrain.envs.vector_field.policies import PolicyState, init_policy_state
from quatrain.envs.vector_field.world import EnvState, FieldSystem, Transition
from quatrain.frameworks.torch import generator_from_seed, generator_from_state
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.collect import Dataset, world_of
from quatrain.models.active_dynamics.config import ARMS, ActiveDynamicsConfig
from quatrain.models.active_dynamics.family import FieldLearner, family_of
from quatrain.models.active_dynamics.planner import Plan
from quatrain.progress import by_seed
from quatrain.replay import windows
from quatrain.replay.windows import WindowRing


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


class TrainingState:
    """Holds all learners with their systems; `train.advance` changes it in place.

    The given state is not changed.
    """

    def __init__(self, config: ActiveDynamicsConfig, dataset: Dataset, state: State) -> None:
        self.config = config
        self.dataset = dataset
        self.learner: FieldLearner = family_of(config).from_state(config, dataset, state)
        self.policy_states = dict(state.policy_states)
        self.plan = state.plan
        self.generators = {
            name: generator_from_state(saved) for name, saved in state.generators.items()
        }
        self.replay = cloned(state.replay)
        self.path = state.path.clone()
        self.snapshots = cloned(state.snapshots)
        self.information = state.information
        self.planned = state.planned.clone()
        self.transitions = int(state.transitions)
        self.world = world_of(config, dataset)
        noise = [self.generators[f"process_{arm}"] for arm in config.train.arms]
        counts = [self.generators[f"counts_{arm}"] for arm in config.train.arms]
        unseen = torch.zeros(config.learners, config.env.observation.channels)
        self.system = FieldSystem(self.world, state.environment, unseen, noise, counts)
        self.checkpoints = {step: place for place, step in enumerate(checkpoint_steps(config))}

    def to_state(self) -> State:
        """Returns copies of all that changes."""
        return State(
            **self.learner.to_state(),
            environment=cloned(self.system.state),
            policy_states=cloned(self.policy_states),
            plan=cloned(self.plan),
            generators={name: draws.get_state() for name, draws in self.generators.items()},
            replay=cloned(self.replay),
            path=self.path.clone(),
            snapshots=cloned(self.snapshots),
            information=self.information.clone(),
            planned=self.planned.clone(),
            transitions=torch.tensor(self.transitions, device="cpu"),
        )

    def replay_warmup(self) -> Transition:
        """Returns the next transition of the warm-up, which is the same for all arms."""
        rollouts = self.dataset.train
        arms = len(self.config.train.arms)
        transition = rollouts.transition(self.transitions, arms)
        age = torch.where(transition.truncated, 0, self.system.state.age + 1)
        x = torch.tensor(rollouts.states[:, self.transitions + 1]).repeat(arms, 1)
        self.system.state = EnvState(x, age)
        return transition

    def save_checkpoint(self) -> None:
        place = self.checkpoints[self.transitions]
        for name, value in self.learner.weights.items():
            self.snapshots[name][place] = value
        self.information = self.learner.information().double()


def init_state(config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> State:
    """Returns the state before the first transition of the warm-up."""
    environment, plan, family, arms = SeedSequence(seed).spawn(4)
    generators = _generators(config, environment, plan, arms)
    learner = family_of(config).init(config, dataset, family)
    starts = torch.tensor(dataset.train.states[:, 0]).repeat(len(config.train.arms), 1)
    checkpoints = len(checkpoint_steps(config))
    action_size = config.env.action_size
    transitions = config.train.transitions
    return State(
        **learner.to_state(),
        environment=EnvState(starts, torch.zeros(len(starts), dtype=torch.int64)),
        policy_states={
            arm: init_policy_state(config.seeds, action_size, generators[f"policy_{arm}"])
            for arm in config.train.arms
        },
        plan=planner.first_plan(config.train.planner, config.seeds, action_size),
        generators={name: draws.get_state() for name, draws in generators.items()},
        replay=windows.allocate(
            config.learners, transitions, config.env.observation.channels, action_size
        ),
        path=torch.zeros(config.learners, transitions, config.env.d),
        snapshots={
            name: torch.zeros(checkpoints, *value.shape) for name, value in learner.weights.items()
        },
        information=torch.zeros(config.learners, dtype=torch.float64),
        planned=torch.zeros(config.learners, dtype=torch.int64),
        transitions=torch.tensor(0, device="cpu"),
    )


def _generators(
    config: ActiveDynamicsConfig, environment: SeedSequence, plan: SeedSequence, arms: SeedSequence
) -> dict[str, Generator]:
    """Returns one generator per purpose and arm; environments draw alike in all arms.

    The active arm's random actions, where it cannot plan, are those of the random arm.
    """
    process, counts = environment.spawn(2)
    generators = {"planner": generator_from_seed(plan)}
    seeds = dict(zip(ARMS, arms.spawn(len(ARMS)), strict=True))
    seeds["active"] = seeds["random"]
    for arm in ARMS:
        if arm in config.train.arms:
            generators[f"process_{arm}"] = generator_from_seed(process)
            generators[f"counts_{arm}"] = generator_from_seed(counts)
            generators[f"policy_{arm}"] = generator_from_seed(seeds[arm])
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


def by_arm(
    arms: Sequence[str], columns: Mapping[str, Float[Tensor, " learner"]]
) -> dict[str, np.ndarray]:
    """Returns one entry of `NAME.ARM` of each arm, and of `NAME` of all, by seed."""
    named = {}
    for name, value in columns.items():
        of_arms = value.numpy(force=True).reshape(len(arms), -1)
        named[name] = of_arms.mean(0)[None]
        named |= {f"{name}.{arm}": seeds[None] for arm, seeds in zip(arms, of_arms, strict=True)}
    return by_seed(named)


def cloned(tree: Any) -> Any:
    """Returns the same nest of tuples and dictionaries around copies of its tensors."""
    return tree_map(lambda leaf: leaf.detach().clone(), tree)
