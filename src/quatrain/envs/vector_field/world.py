"""states, actions, random numbers -> the next states and observations, where ended episodes are
reset.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor

from quatrain.envs.vector_field.config import Env
from quatrain.envs.vector_field.fields import Field, region_grid
from quatrain.envs.vector_field.kinds import FieldError
from quatrain.envs.vector_field.observation import Emission

STARTS = 100
# Long enough to detect divergence caused by dt, too short for the slow drift of any Euler step.
TRIAL_TRANSITIONS = 20
ORBIT_STEPS = 1000
# Length of a step of an orbit, as a share of the escape radius: a path of 10 radii in total.
STRIDE = 0.01


class World(NamedTuple):
    """Holds what all environments share. control: B of u = B a."""

    field: Field
    emission: Emission
    env: Env
    control: Float[Tensor, "d action"]


class EnvState(NamedTuple):
    """Holds the state x of each environment, and its age, the transitions since its reset."""

    x: Float[Tensor, "env d"]
    age: Int64[Tensor, " env"]


class Draws(NamedTuple):
    """Holds the random numbers of one step: standard normal, except `start`, which is uniform in
    -1..1.

    Resets use the last two. Counts do not use the numbers of observations.
    """

    process: Float[Tensor, "env d"]
    observation: Float[Tensor, "env obs"]
    start: Float[Tensor, "env d"]
    start_observation: Float[Tensor, "env obs"]


class ResetResult(NamedTuple):
    state: EnvState
    observation: Float[Tensor, "env obs"]


class StepResult(NamedTuple):
    """Holds a step of all environments.

    state, observation: after resets of truncated episodes. final_x, final_observation: before
    resets. An episode never terminates.
    """

    state: EnvState
    observation: Float[Tensor, "env obs"]
    final_x: Float[Tensor, "env d"]
    final_observation: Float[Tensor, "env obs"]
    truncated: Bool[Tensor, " env"]


def make_world(env: Env, field: Field, emission: Emission) -> World:
    return World(field, emission, env, control_effect(env))


def control_effect(env: Env) -> Float[Tensor, "d action"]:
    """Returns B of u = B a."""
    if env.control is None:
        return torch.eye(env.d)
    return torch.tensor(env.control, dtype=torch.float32)


def draw(world: World, replicates: int, generators: list[Generator]) -> Draws:
    """Draws the random numbers of a step, arm by arm; each arm draws [replicate, ...] from its own
    generator.

    Each step draws the same count of numbers, so that arms with equal seeds stay paired.
    """
    obs, d = world.emission.weight.shape
    normal = torch.empty(len(generators), replicates, d + 2 * obs)
    start = torch.empty(len(generators), replicates, d)
    for normal_of_arm, start_of_arm, generator in zip(normal, start, generators, strict=True):
        normal_of_arm.normal_(generator=generator)
        start_of_arm.uniform_(-1, 1, generator=generator)
    process, observation, start_observation = normal.flatten(0, 1).split([d, obs, obs], 1)
    return Draws(process, observation, start.flatten(0, 1), start_observation)


def reset(world: World, draws: Draws, generators: list[Generator]) -> ResetResult:
    """Resets all environments to x ~ U(-1, 1); the generators are those of `step`."""
    x = draws.start
    return ResetResult(
        EnvState(x, torch.zeros(len(x), dtype=torch.int64, device=x.device)),
        _observe(world, x, draws.start_observation, generators),
    )


def step(
    world: World,
    state: EnvState,
    action: Float[Tensor, "env action"],
    draws: Draws,
    generators: list[Generator],
) -> StepResult:
    """Computes x + (f(x) + B a) dt + √(Q dt) ε, with a clamped to the box; numbers that are not
    finite propagate.

    generators: one per arm, used only for counts. How many numbers a count takes depends on its
    rate, so the generators of `draw` would not stay paired if they drew counts too.
    """
    x = (
        step_mean(world, state.x, action)
        + math.sqrt(world.env.process_noise * world.env.dt) * draws.process
    )
    final = EnvState(x, state.age + 1)
    final_observation = _observe(world, x, draws.observation, generators)
    truncated = x.abs().amax(1) > world.env.escape_radius
    if world.env.episode_transitions is not None:
        truncated |= final.age >= world.env.episode_transitions
    state = final
    observation = final_observation
    # Counts always draw a reset. On other devices than a CPU the test would wait for the device.
    may_skip = truncated.is_cpu and world.emission.noise != "poisson"
    if not may_skip or truncated.any():
        first = reset(world, draws, generators)
        mask = truncated[:, None]
        state = EnvState(
            x=torch.where(mask, first.state.x, x), age=torch.where(truncated, 0, final.age)
        )
        observation = torch.where(mask, first.observation, final_observation)
    return StepResult(
        state=state,
        observation=observation,
        final_x=x,
        final_observation=final_observation,
        truncated=truncated,
    )


def step_mean(
    world: World, x: Float[Tensor, "*batch d"], action: Float[Tensor, "*batch action"]
) -> Float[Tensor, "*batch d"]:
    """Computes the next state without noise."""
    bound = world.env.action_bound
    return x + (world.field(x) + (action.clamp(-bound, bound) @ world.control.T)) * world.env.dt


def check_actions(action: Float[Tensor, "env action"]) -> None:
    """Raises ValueError unless actions are finite; they may lie outside the box.

    Raises:
        ValueError: an action is not finite; names the row.
    """
    faulty = ~action.isfinite().all(1)
    if faulty.any():
        row = int(faulty.int().argmax())
        raise ValueError(
            f"The action of row {row} is not finite: {action[row].tolist()}; give finite numbers."
        )


def check_step(world: World) -> None:
    """Raises FieldError if paths without noise and actions leave the box only because dt is too
    large.

    Raises:
        FieldError: says from how many of 100 starts in the region this happens.
    """
    env = world.env
    grid = region_grid(env.region_radius, env.d)
    starts = grid[torch.arange(STARTS) * (len(grid) - 1) // (STARTS - 1)]
    left = _leaves(world, starts, TRIAL_TRANSITIONS, math.inf)
    if left.any():
        left &= ~_leaves(world, starts, ORBIT_STEPS, STRIDE * env.escape_radius)
    if left.any():
        raise FieldError(
            f"dt {env.dt:g} is too large for field {world.field.kind!r}: "
            f"an undriven path left the box from {int(left.sum())} of {STARTS} starts; "
            "lower active_dynamics.env.dt."
        )


def _leaves(
    world: World, x: Float[Tensor, "start d"], steps: int, stride: float
) -> Bool[Tensor, " start"]:
    """Returns whether paths leave the box of `escape_radius`; steps take dt, but are no longer than
    `stride`.
    """
    left = torch.zeros(len(x), dtype=torch.bool)
    for _ in range(steps):
        velocity = world.field(x)
        x = x + velocity * (stride / velocity.norm(dim=1, keepdim=True)).clamp(max=world.env.dt)
        left |= ~(x.abs().amax(1) <= world.env.escape_radius)
    return left


def _observe(
    world: World,
    x: Float[Tensor, "env d"],
    draws: Float[Tensor, "env obs"],
    generators: list[Generator],
) -> Float[Tensor, "env obs"]:
    """Draws observations; counts arm by arm, so that they do not depend on the other arms."""
    if world.emission.noise == "gaussian":
        return world.emission.sample(x, draws, generators[0])
    pairs = zip(x.unflatten(0, (len(generators), -1)), generators, strict=True)
    return torch.cat([world.emission.sample(arm, None, generator) for arm, generator in pairs])
