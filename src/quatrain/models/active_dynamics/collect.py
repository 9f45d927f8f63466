"""config, seed -> the start that all arms share, and what the learned field is judged with.

Whatever is learned from is met while learning; this is what does not depend on a learner.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import make_field, region_grid, restore_field
from quatrain.envs.vector_field.observation import Emission, draw_emission
from quatrain.envs.vector_field.policies import PolicySpec, act, init_policy_state
from quatrain.envs.vector_field.world import (
    EnvState,
    ResetResult,
    StepResult,
    World,
    check_step,
    draw,
    make_world,
    reset,
    step,
    step_mean,
)
from quatrain.errors import DatasetMismatch
from quatrain.frameworks.torch.rng import generator_from_seed
from quatrain.models.active_dynamics.config import ActiveDynamicsConfig

HELD_OUT_STEPS = 100
"""Transitions of a held-out rollout."""
CLEAN_STEPS = 20
"""Transitions of a rollout of the true field without noise."""
PRBS_HOLD = (3, 19)
"""Transitions that a held-out binary sequence holds its signs: least and most."""
RESIDUAL = 0.5
"""How far the noise of a dataset's channels may be from what it should be: thousands of numbers are compared."""


class Rollouts(NamedTuple):
    """Observed transitions; where one was truncated, what follows begins anew.

    observations, states: before each transition, and after the last. next_observations, next_states: after each
    transition, before a new beginning.
    """

    observations: Float32[np.ndarray, "rollout time_1 obs"]
    next_observations: Float32[np.ndarray, "rollout time obs"]
    actions: Float32[np.ndarray, "rollout time action"]
    states: Float32[np.ndarray, "rollout time_1 d"]
    next_states: Float32[np.ndarray, "rollout time d"]
    truncated: Bool[np.ndarray, "rollout time"]


class EmissionArrays(NamedTuple):
    """How states are seen; a learner reads it with `decoder: known` alone."""

    weight: Float32[np.ndarray, "obs d"]
    bias: Float32[np.ndarray, " obs"]
    noise_variance: Float32[np.ndarray, " obs"]


class FieldArrays(NamedTuple):
    """What was drawn or computed of the true field; judges and environments read it."""

    alpha: Float32[np.ndarray, ""]
    table: Float32[np.ndarray, "_ d_ n2 n1"]


class HeldOut(NamedTuple):
    """Observed rollouts, half by random actions and half by binary sequences; ones without noise; the true field."""

    rollouts: Rollouts
    starts: Float32[np.ndarray, "start d"]
    start_actions: Float32[np.ndarray, "start clean_time action"]
    clean_states: Float32[np.ndarray, "start clean_time_1 d"]
    grid: Float32[np.ndarray, "point d"]
    grid_field: Float32[np.ndarray, "point d"]


class Dataset(NamedTuple):
    """train: rollouts of random actions, one per replicate, that all arms begin with."""

    train: Rollouts
    emission: EmissionArrays
    field: FieldArrays
    held_out: HeldOut


def collect(config: ActiveDynamicsConfig, seed: int) -> Dataset:
    """Field, channels, the common start and held-out rollouts; each from random numbers of its own.

    Raises:
        FieldError: the field is none, or its steps are too long.
    """
    drawn, channels, start, observed, clean = (
        generator_from_seed(own) for own in np.random.SeedSequence(seed).spawn(5)
    )
    env = config.env
    field = make_field(env.world.field, drawn)
    world = make_world(env.world, field, draw_emission(env.emission, env.d, channels))
    check_step(world)
    actions = random_actions(world, (config.seeds, config.collect.warmup), start)
    return Dataset(
        train=rolled(world, None, actions, start),
        emission=EmissionArrays(*(array(part) for part in world.emission[2:])),
        field=FieldArrays(array(field.alpha), array(field.table)),
        held_out=_held_out(config, world, observed, clean),
    )


def _held_out(
    config: ActiveDynamicsConfig, world: World, observed: Generator, clean: Generator
) -> HeldOut:
    own, radius, d = config.collect, config.env.region_radius, config.env.d
    half = (own.held_out_rollouts // 2, HELD_OUT_STEPS)
    actions = torch.cat(
        [random_actions(world, half, observed), prbs_actions(world, half, observed)]
    )
    rollouts = rolled(world, in_ball(len(actions), d, radius, observed), actions, observed)
    starts = in_ball(own.starts, d, radius, clean)
    start_actions = random_actions(world, (own.starts, CLEAN_STEPS), clean)
    path = [starts]
    for action in start_actions.unbind(1):
        path.append(step_mean(world, path[-1], action))
    grid = region_grid(radius, d)
    parts = (starts, start_actions, torch.stack(path, 1), grid, world.field(grid))
    return HeldOut(rollouts, *(array(part) for part in parts))


def rolled(
    world: World,
    starts: Float[Tensor, "rollout d"] | None,
    actions: Float[Tensor, "rollout time action"],
    draws: Generator,
) -> Rollouts:
    """Rollouts of these actions, from the environment's own starts where none are given."""
    begun = reset(world, draw(world, len(actions), [draws]), [draws])
    if starts is not None:
        first = EnvState(starts, torch.zeros_like(begun.state.age))
        begun = ResetResult(first, world.emission.sample(starts, None, draws))
    made = [
        StepResult(
            begun.state, begun.observation, begun.state.x, begun.observation, torch.tensor(False)
        )
    ]
    for action in actions.unbind(1):
        made.append(
            step(world, made[-1].state, action, draw(world, len(actions), [draws]), [draws])
        )
    return Rollouts(
        observations=_columns(one.observation for one in made),
        next_observations=_columns(one.final_observation for one in made[1:]),
        actions=array(actions),
        states=_columns(one.state.x for one in made),
        next_states=_columns(one.final_x for one in made[1:]),
        truncated=_columns(one.truncated for one in made[1:]),
    )


def _columns(of_times: Iterable[Tensor]) -> np.ndarray:
    return array(torch.stack(list(of_times), 1))


def random_actions(
    world: World, shape: tuple[int, int], draws: Generator
) -> Float[Tensor, "rollout time action"]:
    """Uniform in the box."""
    bound = world.spec.action_bound
    return uniform((*shape, world.spec.action_size), draws) * bound


def prbs_actions(
    world: World, shape: tuple[int, int], draws: Generator
) -> Float[Tensor, "rollout time action"]:
    """Pseudo-random binary sequences."""
    rollouts, steps = shape
    spec = PolicySpec(
        world.spec.action_bound,
        world.spec.dt,
        steps,
        step_hold=1,
        prbs_hold=PRBS_HOLD,
        chirp=(1, 1),
    )
    held, found = init_policy_state(rollouts, world.spec.action_size, draws), []
    for time in range(steps):
        held = act("prbs", spec, held, time, draws)
        found.append(held.action)
    return torch.stack(found, 1)


def in_ball(count: int, d: int, radius: float, draws: Generator) -> Float[Tensor, "start d"]:
    """Uniform in the region."""
    direction = torch.randn(count, d, generator=draws)
    distance = torch.rand(count, 1, generator=draws) ** (1 / d)
    return radius * distance * direction / direction.norm(dim=1, keepdim=True)


def uniform(shape: tuple[int, ...], draws: Generator) -> Tensor:
    """In (-1, 1)."""
    return 2 * torch.rand(shape, generator=draws) - 1


def array(value: Tensor) -> np.ndarray:
    """With memory of its own."""
    return np.array(value.numpy(force=True))


def world_of(config: ActiveDynamicsConfig, dataset: Dataset) -> World:
    """The environment that the dataset was collected in."""
    field = restore_field(config.env.world.field, *(torch.tensor(part) for part in dataset.field))
    return make_world(config.env.world, field, emission_of(config, dataset))


def emission_of(config: ActiveDynamicsConfig, dataset: Dataset) -> Emission:
    """The true channels."""
    seen = config.env.observation
    return Emission(seen.kind, seen.noise, *(torch.tensor(part) for part in dataset.emission))


def check(config: ActiveDynamicsConfig, dataset: Dataset) -> None:
    """Nothing, where all that a dataset tells of the config that it was collected for is so in this one.

    Raises:
        DatasetMismatch: it is of another config; or something in it is not finite.
    """
    for name, (values, shape) in _shapes(config, dataset).items():
        if values.shape != shape:
            raise DatasetMismatch(
                f"active_dynamics: {name} has shape {values.shape}, this config wants {shape}; collect again"
            )
    train = dataset.train
    for name, values in (
        ("observations", train.observations),
        ("next_observations", train.next_observations),
    ):
        broken = np.argwhere(~np.isfinite(values))
        if len(broken):
            row, time = (int(place) for place in broken[0][:2])
            raise DatasetMismatch(
                f"active_dynamics: train.{name} of replicate {row} at transition {time} is not finite; collect again"
            )
    for part, same in _of_the_config(config, dataset).items():
        if not same:
            raise DatasetMismatch(
                f"active_dynamics: the dataset is of another {part}; collect again"
            )


def _shapes(
    config: ActiveDynamicsConfig, dataset: Dataset
) -> dict[str, tuple[np.ndarray, tuple[int, ...]]]:
    """What there is, and the shape that it should have."""
    env, own, train, held_out = config.env, config.collect, dataset.train, dataset.held_out
    channels, d, rollouts = env.observation.channels, env.d, own.held_out_rollouts // 2 * 2
    return {
        "train.observations": (train.observations, (config.seeds, own.warmup + 1, channels)),
        "train.actions": (train.actions, (config.seeds, own.warmup, env.action_size)),
        "train.states": (train.states, (config.seeds, own.warmup + 1, d)),
        "emission.weight": (dataset.emission.weight, (channels, d)),
        "held_out.starts": (held_out.starts, (own.starts, d)),
        "held_out.rollouts.observations": (
            held_out.rollouts.observations,
            (rollouts, HELD_OUT_STEPS + 1, channels),
        ),
    }


def _of_the_config(config: ActiveDynamicsConfig, dataset: Dataset) -> dict[str, bool]:
    """Whether what a dataset tells of its field, region, steps and channels is what the config says of them."""
    env, held_out = config.env, dataset.held_out
    spec, seen, grid = env.world.field, env.emission, array(region_grid(env.region_radius, env.d))
    drawn = spec.kind == "multi_attractor"
    world = world_of(config, dataset)
    field = world.field if drawn else make_field(spec, Generator())
    variance = seen.noise_sd**2 if seen.noise == "gaussian" else 0.0
    starts, actions = torch.tensor(held_out.starts), torch.tensor(held_out.start_actions[:, 0])
    stepped = array(step_mean(world, starts, actions))
    return {
        "region than env.region_radius": grid.shape == held_out.grid.shape
        and np.allclose(grid, held_out.grid),
        "field than env.field": np.allclose(
            array(field(torch.tensor(held_out.grid))), held_out.grid_field, atol=1e-4
        ),
        "step than env.dt, control and action_bound": np.allclose(
            stepped, held_out.clean_states[:, 1], atol=1e-4
        ),
        "noise than env.observation": np.allclose(dataset.emission.noise_variance, variance),
        "kind of channels than env.observation": _sees(world.emission, held_out.rollouts),
    }


def _sees(emission: Emission, rollouts: Rollouts) -> bool:
    """Whether what is seen beyond h(x) is as large as its noise; counts have one kind of channels alone."""
    x, y = (
        torch.tensor(rollouts.next_states).double(),
        torch.tensor(rollouts.next_observations).double(),
    )
    channels = emission.double()
    square = ((y - channels.mean(x)).square() / channels.variance(x)).mean()
    return emission.noise == "poisson" or bool(abs(square - 1) < RESIDUAL)
