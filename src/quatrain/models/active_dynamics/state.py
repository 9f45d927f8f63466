"""a learner <-> what works on it: the environment, policies, generators, and the rows of its family."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from numpy.random import SeedSequence
from torch import Generator, Tensor

from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.fields import region_grid
from quatrain.envs.vector_field.policies import PolicySpec, PolicyState
from quatrain.envs.vector_field.world import EnvState, StepResult, World
from quatrain.frameworks.torch.rng import generator_from_seed, generator_from_state
from quatrain.models.active_dynamics import planner
from quatrain.models.active_dynamics.bayes_filter.learner import FilterRows
from quatrain.models.active_dynamics.collect import Dataset, world_of
from quatrain.models.active_dynamics.config import ARMS, ActiveDynamicsConfig
from quatrain.models.active_dynamics.learner import Rows, Seen
from quatrain.models.active_dynamics.planner import Plan
from quatrain.models.active_dynamics.seq_vae.learner import VaeRows
from quatrain.replay import windows
from quatrain.replay.windows import WindowRing

FAMILIES: dict[str, type[Rows]] = {"bayes_filter": FilterRows, "seq_vae": VaeRows}
MONITORED = 4
"""Of the region's grid, every so many-th point is looked at while learning."""


class Met(NamedTuple):
    """A transition of all rows: what a learner sees of it, where it led, and from where it goes on."""

    seen: Seen
    final_x: Float[Tensor, "row d"]
    state: EnvState


@dataclass
class Trial:
    """All rows at work; `train.advance` changes them in place."""

    config: ActiveDynamicsConfig
    dataset: Dataset
    given: "Given"
    world: World
    rows: Rows
    environment: EnvState
    held: dict[str, PolicyState]
    plan: Plan
    generators: dict[str, Generator]
    replay: WindowRing
    path: Float[Tensor, "row transition d"]
    snapshots: dict[str, Tensor]
    gained: Float64[Tensor, " row"]
    transitions: int
    checkpoints: dict[int, int]
    monitored: "Monitored"

    @property
    def plan_age(self) -> int:
        """Transitions since the active arm planned; it plans at the end of the warm-up first."""
        return (
            self.transitions - self.config.collect.warmup
        ) % self.config.train.planner.replan_every

    def rows_of(self, arm: str) -> slice:
        """Where the rows of an arm are."""
        return rows_of(self.config, arm)

    def generators_of(self, purpose: str) -> list[Generator]:
        """One per arm."""
        return [self.generators[f"{purpose}_{arm}"] for arm in self.config.train.arms]

    def habit(self, arm: str) -> Float[Tensor, "replicate action"]:
        """The action of an arm that does not plan."""
        spec, draws = policy_spec(self.config), self.generators[f"policy_{arm}"]
        self.held[arm] = policies.act(arm, spec, self.held[arm], self.transitions, draws)
        return self.held[arm].action

    def warm_up(self) -> Met:
        """A transition of the common start."""
        arms, time, given = len(self.config.train.arms), self.transitions, self.given

        def at(column: Tensor, moment: int) -> Tensor:
            return column[:, moment].repeat(arms, *[1] * (column.ndim - 2))

        action, truncated, x = (
            at(given.actions, time),
            at(given.truncated, time),
            at(given.states, time + 1),
        )
        age = torch.where(truncated, 0, self.environment.age + 1)
        control = action @ self.world.control.T
        seen = Seen(
            action,
            control,
            at(given.next_observations, time),
            truncated,
            at(given.observations, time + 1),
        )
        return Met(seen, at(given.next_states, time), EnvState(x, age))

    def met(self, action: Float[Tensor, "row action"], made: StepResult) -> Met:
        """A transition that the environment made."""
        bound = self.config.env.action_bound
        action = action.clamp(-bound, bound)
        seen = Seen(
            action,
            action @ self.world.control.T,
            made.final_observation,
            made.truncated,
            made.observation,
        )
        return Met(seen, made.final_x, made.state)

    def write(self, met: Met) -> None:
        """Into the replay, and onto the path."""
        seen = met.seen
        entry = windows.Entry(seen.observation, seen.action, seen.truncated)
        windows.write(self.replay, entry, self.config.train.seq_vae.length)
        self.path[:, self.transitions] = met.final_x

    def keep(self) -> None:
        """A checkpoint of the weights."""
        place = self.checkpoints[self.transitions]
        for name, value in self.rows.weights.items():
            self.snapshots[name][place] = value
        self.gained = self.rows.information().double()


class Given(NamedTuple):
    """The common start, on the device: `collect.Rollouts` as tensors."""

    observations: Float[Tensor, "replicate time_1 obs"]
    next_observations: Float[Tensor, "replicate time obs"]
    actions: Float[Tensor, "replicate time action"]
    states: Float[Tensor, "replicate time_1 d"]
    next_states: Float[Tensor, "replicate time d"]
    truncated: Bool[Tensor, "replicate time"]


class Monitored(NamedTuple):
    """Points of the region, and the true field there: for the eye, never for learning."""

    grid: Float[Tensor, "point d"]
    field: Float[Tensor, "point d"]


def checkpoint_steps(config: ActiveDynamicsConfig) -> tuple[int, ...]:
    """Transitions at which weights are kept: evenly spaced in their logarithm, from the warm-up's end to the last."""
    first, last = config.collect.warmup, config.train.transitions
    return tuple(
        np.unique(np.geomspace(first, last, config.train.checkpoints).round().astype(int)).tolist()
    )


def rows_of(config: ActiveDynamicsConfig, arm: str) -> slice:
    """Where the rows of an arm are."""
    first = config.train.arms.index(arm) * config.seeds
    return slice(first, first + config.seeds)


def policy_spec(config: ActiveDynamicsConfig) -> PolicySpec:
    """What habits depend on."""
    own, env = config.train.policies, config.env
    return PolicySpec(
        env.action_bound, env.dt, config.train.transitions, own.step_hold, own.prbs_hold, own.chirp
    )


def fresh(config: ActiveDynamicsConfig, dataset: Dataset, seed: int) -> Trial:
    """At the common start."""
    environment, plan, family, habits = SeedSequence(seed).spawn(4)
    generators = _generators(config, environment, plan, habits)
    size, length, channels = (
        config.env.action_size,
        config.train.transitions,
        config.env.observation.channels,
    )
    habitual = [arm for arm in config.train.arms if arm != "active"]
    rows = FAMILIES[config.network.family].fresh(config, dataset, family)
    states = torch.tensor(dataset.train.states[:, 0]).repeat(len(config.train.arms), 1)
    count = len(checkpoint_steps(config))
    return _at_work(
        config,
        dataset,
        {
            "rows": rows,
            "environment": EnvState(states, torch.zeros(len(states), dtype=torch.int64)),
            "held": {
                arm: policies.init_policy_state(config.seeds, size, generators[f"policy_{arm}"])
                for arm in habitual
            },
            "plan": planner.first_plan(config.train.planner, config.seeds, size),
            "generators": generators,
            "replay": windows.allocate(config.rows, length, channels, size),
            "path": torch.zeros(config.rows, length, config.env.d),
            "snapshots": {
                name: torch.zeros(count, *value.shape) for name, value in rows.weights.items()
            },
            "gained": torch.zeros(config.rows, dtype=torch.float64),
            "transitions": 0,
        },
    )


def _generators(
    config: ActiveDynamicsConfig,
    environment: SeedSequence,
    plan: SeedSequence,
    habits: SeedSequence,
) -> dict[str, Generator]:
    """One per purpose and arm. Arms draw alike in the environment, so that they are compared in pairs."""
    process, counts = environment.spawn(2)
    found = {"planner": generator_from_seed(plan)}
    for arm, habit in zip(ARMS, habits.spawn(len(ARMS)), strict=True):
        if arm in config.train.arms:
            purposes = {"process": process, "counts": counts, "policy": habit}
            found |= {
                f"{purpose}_{arm}": generator_from_seed(own) for purpose, own in purposes.items()
            }
    return found


def restored(config: ActiveDynamicsConfig, dataset: Dataset, state: Any) -> Trial:
    """Where a learner was; of it nothing is changed."""
    rows = FAMILIES[config.network.family].restored(config, dataset, state)
    return _at_work(
        config,
        dataset,
        {
            "rows": rows,
            "environment": state.environment,
            "held": dict(state.held),
            "plan": state.plan,
            "generators": {
                name: generator_from_state(state) for name, state in state.generators.items()
            },
            "replay": cloned(state.replay),
            "path": state.path.clone(),
            "snapshots": cloned(state.snapshots),
            "gained": state.gained,
            "transitions": int(state.transitions),
        },
    )


def _at_work(config: ActiveDynamicsConfig, dataset: Dataset, parts: dict[str, Any]) -> Trial:
    steps = checkpoint_steps(config)
    world = world_of(config, dataset)
    grid = region_grid(config.env.region_radius, config.env.d)[::MONITORED]
    return Trial(
        config=config,
        dataset=dataset,
        given=windows.to_device(
            Given(*map(torch.from_numpy, dataset.train)), torch.get_default_device()
        ),
        world=world,
        checkpoints={step: place for place, step in enumerate(steps)},
        monitored=Monitored(grid.double(), world.field(grid).double()),
        **parts,
    )


def state_of(trial: Trial) -> dict[str, Any]:
    """The parts of a learner, in tensors that stay so."""
    return {
        **trial.rows.state(),
        "environment": cloned(trial.environment),
        "held": cloned(trial.held),
        "plan": cloned(trial.plan),
        "generators": {name: one.get_state() for name, one in trial.generators.items()},
        "replay": cloned(trial.replay),
        "path": trial.path.clone(),
        "snapshots": cloned(trial.snapshots),
        "gained": trial.gained.clone(),
        "transitions": torch.tensor(trial.transitions),
    }


def cloned(tree: Any) -> Any:
    """The same nest of tuples and dictionaries around copies of its tensors."""
    if isinstance(tree, Tensor):
        return tree.detach().clone()
    if isinstance(tree, dict):
        return {name: cloned(child) for name, child in tree.items()}
    return type(tree)(*map(cloned, tree)) if hasattr(tree, "_fields") else tuple(map(cloned, tree))
