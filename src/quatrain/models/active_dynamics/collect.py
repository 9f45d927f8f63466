"""config, seed -> dataset: the start that all arms share, held-out rollouts, the true field."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Generator, Tensor

from quatrain.envs.vector_field import policies
from quatrain.envs.vector_field.config import Env
from quatrain.envs.vector_field.fields import make_field, region_grid, restore_field
from quatrain.envs.vector_field.world import (
    Emission,
    FieldSystem,
    Transition,
    World,
    check_step,
    draw_emission,
    make_world,
    step_mean,
)
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.torch import generator_from_seed
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig, ActiveDynamicsUserEnvConfig
from quatrain.models.active_dynamics.user_env import data

HELD_OUT_STEPS = 100
# Transitions of a rollout of the true field without noise.
CLEAN_STEPS = 20
# Least and most transitions between sign changes of a held-out binary sequence.
PRBS_HOLD = (3, 19)
# Largest relative difference between the noise of a dataset and that of the config.
RESIDUAL = 0.5


class Rollouts(NamedTuple):
    """Holds observed transitions; after a truncated one a new episode starts.

    observations, states: before each transition, and after the last. next_observations,
    next_states: after each transition, before a reset. States that are unknown have no columns.
    """

    observations: Float32[np.ndarray, "rollout time_1 obs"]
    next_observations: Float32[np.ndarray, "rollout time obs"]
    actions: Float32[np.ndarray, "rollout time action"]
    states: Float32[np.ndarray, "rollout time_1 d"]
    next_states: Float32[np.ndarray, "rollout time d"]
    truncated: Bool[np.ndarray, "rollout time"]

    @property
    def transitions(self) -> int:
        return self.actions.shape[1]

    def transition(self, time: int, copies: int = 1) -> Transition:
        """Returns a transition of all rollouts, `copies` times side by side."""

        def at(column: np.ndarray, time: int) -> Tensor:
            values = torch.tensor(column[:, time])
            return values.repeat(copies, *[1] * (values.ndim - 1))

        return Transition(
            observation=at(self.next_observations, time),
            action=at(self.actions, time),
            truncated=at(self.truncated, time),
            start=at(self.observations, time + 1),
            final_x=at(self.next_states, time),
        )


def record(system: FieldSystem, act: Callable[[int], Tensor], count: int) -> Rollouts:
    """Records transitions from the current observation on; `act` is given the number of each."""
    observations, states, steps = [system.observation], [system.x], []
    for time in range(count):
        steps.append(system.step(act(time)))
        observations.append(system.observation)
        states.append(system.x)

    def column(values: Iterable[Tensor]) -> np.ndarray:
        return torch.stack(list(values), 1).numpy(force=True)

    return Rollouts(
        observations=column(observations),
        next_observations=column(step.observation for step in steps),
        actions=column(step.action for step in steps),
        states=column(states),
        next_states=column(step.final_x for step in steps),
        truncated=column(step.truncated for step in steps),
    )


class EmissionArrays(NamedTuple):
    """Holds the true channels; a learner reads them only with `decoder: known`."""

    weight: Float32[np.ndarray, "obs d"]
    bias: Float32[np.ndarray, " obs"]
    noise_variance: Float32[np.ndarray, " obs"]


class FieldArrays(NamedTuple):
    """Holds what was drawn or computed for the true field; only environments and scores read it."""

    alpha: Float32[np.ndarray, ""]
    table: Float32[np.ndarray, "_ d_ n2 n1"]


class HeldOut(NamedTuple):
    """Holds observed rollouts, and the true field.

    rollouts: half with random actions, half with binary sequences. clean_states: rollouts without
    noise, from `starts` with `start_actions`. grid_field: the true field on a grid of the region.
    """

    rollouts: Rollouts
    starts: Float32[np.ndarray, "start d"]
    start_actions: Float32[np.ndarray, "start clean_time action"]
    clean_states: Float32[np.ndarray, "start clean_time_1 d"]
    grid: Float32[np.ndarray, "point d"]
    grid_field: Float32[np.ndarray, "point d"]


class Dataset(NamedTuple):
    """Holds all that does not depend on a learner.

    train: rollouts of random actions, one per replicate, that all arms start with.
    """

    train: Rollouts
    emission: EmissionArrays
    field: FieldArrays
    held_out: HeldOut


def dataset_type(config: ActiveDynamicsConfig) -> type[Dataset] | type[data.Dataset]:
    return data.Dataset if config.brings_env else Dataset


def collect(config: ActiveDynamicsConfig, seed: int) -> Dataset | data.Dataset:
    """Draws field and channels, and collects the common start and the held-out rollouts.

    Each part has random numbers of its own. A user's system is played, or its recording read.

    Raises:
        FieldError: the field does not exist, or its steps are too long.
        DataError: an environment or a recording cannot be used.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        return data.collect(config, seed)
    seeds = np.random.SeedSequence(seed).spawn(5)
    for_field, for_channels, for_start, for_rollouts, for_clean = map(generator_from_seed, seeds)
    env = config.env
    field = make_field(env, for_field)
    world = make_world(env, field, draw_emission(env.observation, env.d, for_channels))
    check_step(world)
    actions = random_actions(env, (config.seeds, config.collect.warmup), for_start)
    return Dataset(
        train=roll_out(world, None, actions, for_start),
        emission=EmissionArrays(*map(array, world.emission[2:])),
        field=FieldArrays(array(field.alpha), array(field.table)),
        held_out=_held_out(config, world, for_rollouts, for_clean),
    )


def _held_out(
    config: ActiveDynamicsConfig, world: World, for_rollouts: Generator, for_clean: Generator
) -> HeldOut:
    radius = config.env.region_radius
    d = config.env.d
    half = (config.collect.held_out_rollouts // 2, HELD_OUT_STEPS)
    drawn = [draw(config.env, half, for_rollouts) for draw in (random_actions, prbs_actions)]
    actions = torch.cat(drawn)
    rollout_starts = uniform_in_ball(len(actions), d, radius, for_rollouts)
    rollouts = roll_out(world, rollout_starts, actions, for_rollouts)

    starts = uniform_in_ball(config.collect.starts, d, radius, for_clean)
    start_actions = random_actions(config.env, (len(starts), CLEAN_STEPS), for_clean)
    path = [starts]
    for action in start_actions.unbind(1):
        path.append(step_mean(world, path[-1], action))
    grid = region_grid(radius, d)
    return HeldOut(
        rollouts=rollouts,
        starts=array(starts),
        start_actions=array(start_actions),
        clean_states=array(torch.stack(path, 1)),
        grid=array(grid),
        grid_field=array(world.field(grid)),
    )


def roll_out(
    world: World,
    starts: Float[Tensor, "rollout d"] | None,
    actions: Float[Tensor, "rollout time action"],
    rng: Generator,
) -> Rollouts:
    """Simulates these actions, from the environment's own starts if none are given."""
    system = FieldSystem.started(world, len(actions), rng)
    if starts is not None:
        system.start_at(starts)
    return record(system, lambda time: actions[:, time], actions.shape[1])


def random_actions(
    env: Env, shape: tuple[int, int], rng: Generator
) -> Float[Tensor, "rollout time action"]:
    """Draws actions uniformly from the box."""
    uniform = 2 * torch.rand((*shape, env.action_size), generator=rng) - 1
    return uniform * env.action_bound


def prbs_actions(
    env: Env, shape: tuple[int, int], rng: Generator
) -> Float[Tensor, "rollout time action"]:
    rollouts, steps = shape
    state = policies.init_policy_state(rollouts, env.action_size, rng)
    actions = []
    for _ in range(steps):
        state = policies.act("prbs", env.action_bound, PRBS_HOLD, state, rng)
        actions.append(state.action)
    return torch.stack(actions, 1)


def uniform_in_ball(count: int, d: int, radius: float, rng: Generator) -> Float[Tensor, "start d"]:
    """Draws states uniformly from the region."""
    direction = torch.randn(count, d, generator=rng)
    distance = torch.rand(count, 1, generator=rng) ** (1 / d)
    return radius * distance * direction / direction.norm(dim=1, keepdim=True)


def array(value: Tensor) -> np.ndarray:
    return np.array(value.numpy(force=True))


def world_of(config: ActiveDynamicsConfig, dataset: Dataset) -> World:
    """Returns the environment that the dataset was collected in."""
    field = restore_field(config.env.field, *map(torch.tensor, dataset.field))
    return make_world(config.env, field, emission_of(config, dataset))


def emission_of(config: ActiveDynamicsConfig, dataset: Dataset) -> Emission:
    observation = config.env.observation
    return Emission(observation.kind, observation.noise, *map(torch.tensor, dataset.emission))


def summary(config: ActiveDynamicsConfig, dataset: Dataset | data.Dataset) -> str:
    """Returns in one line what a user's system gave to learn from; nothing of a built-in field."""
    if isinstance(config, ActiveDynamicsUserEnvConfig) and isinstance(dataset, data.Dataset):
        return data.summary(config, dataset)
    return ""


def check(config: ActiveDynamicsConfig, dataset: Dataset | data.Dataset) -> None:
    """Checks that the dataset was collected under this config, as far as it shows.

    Raises:
        DatasetMismatch: it belongs to another config; or something in it is not finite.
        DataError: a user's environment cannot be made, or its true field cannot be used.
    """
    if isinstance(config, ActiveDynamicsUserEnvConfig):
        assert isinstance(dataset, data.Dataset)
        data.check(config, dataset)
        return
    assert isinstance(dataset, Dataset)
    for name, shape in _shapes(config).items():
        actual = attrgetter(name)(dataset).shape
        if actual != shape:
            raise DatasetMismatch(
                f"active_dynamics: {name} has shape {actual}, this config wants {shape};"
                " collect again"
            )
    for name in ("observations", "next_observations"):
        broken = np.argwhere(~np.isfinite(getattr(dataset.train, name)))
        if len(broken):
            replicate, time = map(int, broken[0][:2])
            raise DatasetMismatch(
                f"active_dynamics: train.{name} of replicate {replicate} at transition {time}"
                " is not finite; collect again"
            )
    for part, same in _agreements(config, dataset).items():
        if not same:
            raise DatasetMismatch(
                f"active_dynamics: the dataset is of another {part}; collect again"
            )


def _shapes(config: ActiveDynamicsConfig) -> dict[str, tuple[int, ...]]:
    d = config.env.d
    channels = config.env.observation.channels
    warmup = config.collect.warmup
    rollouts = config.collect.held_out_rollouts // 2 * 2
    return {
        "train.observations": (config.seeds, warmup + 1, channels),
        "train.actions": (config.seeds, warmup, config.env.action_size),
        "train.states": (config.seeds, warmup + 1, d),
        "emission.weight": (channels, d),
        "held_out.starts": (config.collect.starts, d),
        "held_out.rollouts.observations": (rollouts, HELD_OUT_STEPS + 1, channels),
    }


def _agreements(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, bool]:
    """Compares field, region, steps and channels of the dataset with those of the config."""
    env = config.env
    held_out = dataset.held_out
    grid = array(region_grid(env.region_radius, env.d))
    world = world_of(config, dataset)
    field = world.field
    if env.field.kind != "multi_attractor":
        field = make_field(env, Generator())
    field_values = array(field(torch.tensor(held_out.grid)))
    observed = env.observation
    variance = observed.noise_sd**2 if observed.noise == "gaussian" else 0.0
    actions = torch.tensor(held_out.start_actions[:, 0])
    states = array(step_mean(world, torch.tensor(held_out.starts), actions))
    return {
        "region than env.region_radius": (
            grid.shape == held_out.grid.shape and np.allclose(grid, held_out.grid)
        ),
        "field than env.field": np.allclose(field_values, held_out.grid_field, atol=1e-4),
        "step than env.dt, control and action_bound": np.allclose(
            states, held_out.clean_states[:, 1], atol=1e-4
        ),
        "noise than env.observation": np.allclose(dataset.emission.noise_variance, variance),
        "kind of channels than env.observation": _residual_is_noise(
            world.emission, held_out.rollouts
        ),
    }


def _residual_is_noise(emission: Emission, rollouts: Rollouts) -> bool:
    """Returns whether y - h(x) is as large as its noise; counts have only one kind of channels."""
    x = torch.tensor(rollouts.next_states).double()
    y = torch.tensor(rollouts.next_observations).double()
    channels = emission.double()
    square = ((y - channels.mean(x)).square() / channels.variance(x)).mean()
    return emission.noise == "poisson" or bool(abs(square - 1) < RESIDUAL)
