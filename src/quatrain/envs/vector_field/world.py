"""states, actions, random numbers -> the next states and what is seen of them; those that end begin anew."""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor

from quatrain.envs.vector_field.fields import Field, region_grid
from quatrain.envs.vector_field.kinds import FieldError, WorldSpec
from quatrain.envs.vector_field.observation import Emission

STARTS = 100
TRIAL_TRANSITIONS = 20
"""Enough for a path that dt blows up, too few for the slow drift that any such step adds to a swing."""
ORBIT_STEPS = 1000
STRIDE = 0.01
"""Of an orbit's steps, as a share of the escape radius; a path of 10 radii is followed."""


class World(NamedTuple):
    """What all rows share. control: B of u = B a."""

    field: Field
    emission: Emission
    spec: WorldSpec
    control: Float[Tensor, "d action"]


class EnvState(NamedTuple):
    """x: where each row is. age: transitions since it began."""

    x: Float[Tensor, "row d"]
    age: Int64[Tensor, " row"]


class Draws(NamedTuple):
    """Random numbers of one step: standard normal, but for `start`, uniform in -1..1.

    The last two are used by rows that begin anew. Where observations are counts, those of observations lie idle.
    """

    process: Float[Tensor, "row d"]
    observation: Float[Tensor, "row obs"]
    start: Float[Tensor, "row d"]
    start_observation: Float[Tensor, "row obs"]


class ResetResult(NamedTuple):
    """Rows at their first state."""

    state: EnvState
    observation: Float[Tensor, "row obs"]


class StepResult(NamedTuple):
    """A step of all rows.

    state, observation: rows that were truncated have begun anew. final_x, final_observation: before that, which is
    where the action led. An episode never terminates.
    """

    state: EnvState
    observation: Float[Tensor, "row obs"]
    final_x: Float[Tensor, "row d"]
    final_observation: Float[Tensor, "row obs"]
    truncated: Bool[Tensor, " row"]


def make_world(spec: WorldSpec, field: Field, emission: Emission) -> World:
    """On torch's default device."""
    identity = spec.control is None
    control = (
        torch.eye(spec.field.d) if identity else torch.tensor(spec.control, dtype=torch.float32)
    )
    return World(field, emission, spec, control)


def draw(world: World, replicates: int, generators: list[Generator]) -> Draws:
    """Random numbers of all rows, the arms one after the other; each arm draws [replicate, ...] with its own generator.

    As many are drawn in each step whatever happens, so that arms with equal seeds stay paired.
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
    """All rows at x ~ U(-1, 1); the generators, one per arm, are those of `step`."""
    state = EnvState(
        draws.start, torch.zeros(len(draws.start), dtype=torch.int64, device=draws.start.device)
    )
    return ResetResult(state, _seen(world, draws.start, draws.start_observation, generators))


def step(
    world: World,
    state: EnvState,
    action: Float[Tensor, "row action"],
    draws: Draws,
    generators: list[Generator],
) -> StepResult:
    """x + (f(x) + B a) dt + √(Q dt) ε, with a held within the box; a number that is not finite goes through.

    generators: one per arm, which draw counts and nothing else. How many numbers a count takes depends on its rate:
    the generators of `draw` would not stay paired if they drew counts too.
    """
    spec = world.spec
    noise = math.sqrt(spec.process_noise * spec.dt) * draws.process
    final = EnvState(step_mean(world, state.x, action) + noise, state.age + 1)
    final_observation = _seen(world, final.x, draws.observation, generators)
    truncated = _truncated(spec, final)
    counts = world.emission.noise == "poisson"
    if (
        truncated.is_cpu and not counts and not truncated.any()
    ):  # elsewhere the question would wait for the device
        return StepResult(final, final_observation, final.x, final_observation, truncated)
    started, chosen = reset(world, draws, generators), truncated[:, None]
    state = EnvState(
        torch.where(chosen, started.state.x, final.x), torch.where(truncated, 0, final.age)
    )
    observation = torch.where(chosen, started.observation, final_observation)
    return StepResult(state, observation, final.x, final_observation, truncated)


def step_mean(
    world: World, x: Float[Tensor, "*batch d"], action: Float[Tensor, "*batch action"]
) -> Float[Tensor, "*batch d"]:
    """The next state without noise."""
    bound = world.spec.action_bound
    push = action.clamp(-bound, bound) @ world.control.T
    return x + (world.field(x) + push) * world.spec.dt


def check_actions(action: Float[Tensor, "row action"]) -> None:
    """Refuse what is not a number; what lies outside the box is no fault.

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
    """Refuse a dt at which undriven paths without noise leave a box that the orbits themselves stay in.

    Raises:
        FieldError: says from how many of 100 starts in the region.
    """
    grid = region_grid(world.spec.field.region_radius, world.spec.field.d)
    starts = grid[torch.arange(STARTS) * (len(grid) - 1) // (STARTS - 1)]
    left = _leaves(world, starts, TRIAL_TRANSITIONS, math.inf)
    if left.any():
        left &= ~_leaves(world, starts, ORBIT_STEPS, STRIDE * world.spec.escape_radius)
    if left.any():
        raise FieldError(
            f"dt {world.spec.dt:g} is too large for field {world.field.kind!r}: an undriven path left the box from "
            f"{int(left.sum())} of {STARTS} starts; lower active_dynamics.env.dt."
        )


def _leaves(
    world: World, x: Float[Tensor, "start d"], steps: int, stride: float
) -> Bool[Tensor, " start"]:
    """Whether paths leave the box of `escape_radius`, in steps of dt, or shorter ones where that goes too far."""
    left = torch.zeros(len(x), dtype=torch.bool)
    for _ in range(steps):
        velocity = world.field(x)
        x = x + velocity * (stride / velocity.norm(dim=1, keepdim=True)).clamp(max=world.spec.dt)
        left |= ~(x.abs().amax(1) <= world.spec.escape_radius)
    return left


def _truncated(spec: WorldSpec, state: EnvState) -> Bool[Tensor, " row"]:
    escaped = state.x.abs().amax(1) > spec.escape_radius
    return (
        escaped
        if spec.episode_transitions is None
        else escaped | (state.age >= spec.episode_transitions)
    )


def _seen(
    world: World,
    x: Float[Tensor, "row d"],
    draws: Float[Tensor, "row obs"],
    generators: list[Generator],
) -> Float[Tensor, "row obs"]:
    """Counts are drawn arm by arm, so that an arm's do not depend on which others there are."""
    if world.emission.noise == "gaussian":
        return world.emission.sample(x, draws, generators[0])
    arms = x.unflatten(0, (len(generators), -1))
    pairs = zip(arms, generators, strict=True)
    return torch.cat([world.emission.sample(arm, None, generator) for arm, generator in pairs])
