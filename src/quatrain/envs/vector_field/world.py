"""states, actions, random numbers -> the next states and observations, where ended episodes are
reset

    x_{t+1} = x_t + (f(x_t) + B a_t) dt + √(Q dt) ε      y ~ p(y | h(x))

An observation has the information Λ = Hᵀ R⁻¹ H about its state.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int64
from torch import Generator, Tensor
from torch.nn.functional import linear

from quatrain.envs.vector_field.config import Env, Observation
from quatrain.envs.vector_field.fields import Field, region_grid
from quatrain.envs.vector_field.kinds import FieldError

GREATEST_EXPONENT = 20.0
SMALLEST_RATE = 1e-6
STARTS = 100
# Long enough to detect divergence caused by dt, too short for the slow drift of any Euler step.
TRIAL_TRANSITIONS = 20
ORBIT_STEPS = 1000
# Length of a step of an orbit, as a share of the escape radius: a path of 10 radii in total.
STRIDE = 0.01


class Emission(NamedTuple):
    """Holds y ~ p(y | h(x)): identity h = x, linear h = C x + b, loglinear h = exp(min(C x + b,
    20)).

    weight, bias: C and b; the identity and 0 for kind identity. noise_variance: of gaussian noise y
    = h + sd ε, and 0 for counts y ~ Poisson(max(h, 1e-6)). Computes in the dtype of its tensors.
    """

    kind: Literal["identity", "linear", "loglinear"]
    noise: Literal["gaussian", "poisson"]
    weight: Float[Tensor, "obs d"]
    bias: Float[Tensor, " obs"]
    noise_variance: Float[Tensor, " obs"]

    def mean(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """Computes h(x)."""
        if self.kind == "identity":
            return x
        drive = linear(x, self.weight, self.bias)
        return drive if self.kind == "linear" else drive.clamp(max=GREATEST_EXPONENT).exp()

    def variance(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*#batch obs"]:
        """Returns the variance R of y at x, per channel; the rate if y are counts."""
        if self.noise == "gaussian":
            return self.noise_variance
        return self.mean(x).clamp(min=SMALLEST_RATE)

    def sample(
        self,
        x: Float[Tensor, "*batch d"],
        draws: Float[Tensor, "*batch obs"] | None,
        generator: Generator,
    ) -> Float[Tensor, "*batch obs"]:
        """Draws observations of x: gaussian noise from the standard normal `draws`, if given;
        counts from the generator.
        """
        mean = self.mean(x)
        if self.noise == "poisson":
            return torch.poisson(mean.clamp(min=SMALLEST_RATE), generator)
        if draws is None:
            draws = torch.randn(mean.shape, generator=generator, dtype=x.dtype)
        return mean + self.noise_variance.sqrt() * draws

    def precision(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d d"]:
        """Computes Λ = Hᵀ R⁻¹ H, the information of one observation at x; Λ = Cᵀ diag(rate) C for
        counts.
        """
        obs, d = self.weight.shape
        if self.noise == "gaussian" and self.kind != "loglinear":
            return ((self.weight.T / self.noise_variance) @ self.weight).expand(*x.shape[:-1], d, d)
        squares = (self.weight[:, :, None] * self.weight[:, None]).reshape(obs, d * d)
        return ((self._slope(x).square() / self.variance(x)) @ squares).unflatten(-1, (d, d))

    def information_vector(
        self, y: Float[Tensor, "*batch obs"], x: Float[Tensor, "*batch d"]
    ) -> Float[Tensor, "*batch d"]:
        """Computes Hᵀ R⁻¹ (y - h(x)), the gradient of log p(y | x) in x; Cᵀ (y - rate) for
        counts.
        """
        return (self._slope(x) * (y - self.mean(x)) / self.variance(x)) @ self.weight

    def double(self) -> "Emission":
        return self._replace(
            weight=self.weight.double(),
            bias=self.bias.double(),
            noise_variance=self.noise_variance.double(),
        )

    def _slope(self, x: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch obs"]:
        """Computes dh/d(C x + b), per channel; 0 where the exponent is clamped."""
        if self.kind != "loglinear":
            return x.new_ones(*x.shape[:-1], len(self.weight))
        drive = linear(x, self.weight, self.bias)
        return drive.clamp(max=GREATEST_EXPONENT).exp() * (drive < GREATEST_EXPONENT)


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


class Transition(NamedTuple):
    """Holds a transition of all environments; an episode is truncated, but never terminates.

    observation: what the action led to, before a reset. start: the observation that the next
    transition starts from; where the episode ended, the first of the next one. final_x: the state
    before a reset; no columns where it is unknown.
    """

    observation: Float[Tensor, "env obs"]
    action: Float[Tensor, "env action"]
    truncated: Bool[Tensor, " env"]
    start: Float[Tensor, "env obs"]
    final_x: Float[Tensor, "env d"]


class Draws(NamedTuple):
    """Holds the random numbers of one step: standard normal, except `start`, which is uniform in
    -1..1.

    Resets use the last two. Counts do not use the numbers of observations.
    """

    process: Float[Tensor, "env d"]
    observation: Float[Tensor, "env obs"]
    start: Float[Tensor, "env d"]
    start_observation: Float[Tensor, "env obs"]


def draw_emission(config: Observation, d: int, generator: Generator) -> Emission:
    """Draws C ~ N(0, weight_sd²) and b ~ N(0, bias_sd²); kind identity draws nothing and has d
    channels.
    """
    if config.kind == "identity":
        weight = torch.eye(d)
        bias = torch.zeros(d)
    else:
        weight = config.weight_sd * torch.randn(config.channels, d, generator=generator)
        bias = config.bias_sd * torch.randn(config.channels, generator=generator)
    return Emission(
        config.kind,
        config.noise,
        weight,
        bias,
        torch.full_like(bias, config.noise_sd**2 if config.noise == "gaussian" else 0.0),
    )


def make_world(env: Env, field: Field, emission: Emission) -> World:
    return World(field, emission, env, control_effect(env))


def control_effect(env: Env) -> Float[Tensor, "d action"]:
    """Returns B of u = B a."""
    if env.control is None:
        return torch.eye(env.d)
    return torch.tensor(env.control, dtype=torch.float32)


@dataclass
class FieldSystem:
    """Moves states along a vector field; actions are clipped to the box.

    Environments are those of arms, arm by arm, with as many replicates each, which draw from the
    arm's generators: `noise`, and `counts` where observations are counts. How many numbers a count
    takes depends on its rate, so arms with equal seeds would not stay paired with one generator.
    """

    world: World
    state: EnvState
    observation: Float[Tensor, "env obs"]
    noise: list[Generator]
    counts: list[Generator]

    @classmethod
    def started(cls, world: World, envs: int, generator: Generator) -> "FieldSystem":
        """Returns environments of one arm after a reset."""
        obs, d = world.emission.weight.shape
        state = EnvState(torch.zeros(envs, d), torch.zeros(envs, dtype=torch.int64))
        system = cls(world, state, torch.zeros(envs, obs), [generator], [generator])
        system.reset()
        return system

    @property
    def x(self) -> Float[Tensor, "env d"]:
        return self.state.x

    def reset(self) -> None:
        """Starts new episodes at x ~ U(-1, 1)."""
        draws = self.draw()
        self.state = EnvState(draws.start, torch.zeros_like(self.state.age))
        self.observation = self._observe(draws.start, draws.start_observation)

    def start_at(self, x: Float[Tensor, "env d"]) -> None:
        """Starts new episodes at states instead of random ones."""
        self.state = EnvState(x, torch.zeros_like(self.state.age))
        self.observation = self.world.emission.sample(x, None, self.noise[0])

    def step(self, action: Float[Tensor, "env action"]) -> Transition:
        """Makes a transition; numbers that are not finite propagate."""
        env = self.world.env
        draws = self.draw()
        noise = math.sqrt(env.process_noise * env.dt) * draws.process
        x = step_mean(self.world, self.state.x, action) + noise
        observation = self._observe(x, draws.observation)
        age = self.state.age + 1
        truncated = x.abs().amax(1) > env.escape_radius
        if env.episode_transitions is not None:
            truncated |= age >= env.episode_transitions
        self.state = EnvState(x, age)
        self.observation = observation
        # Counts always draw a reset. The test would wait for a device other than the CPU.
        may_skip = truncated.is_cpu and self.world.emission.noise != "poisson"
        if not may_skip or truncated.any():
            self._restart(truncated, draws)
        bounded = action.clamp(-env.action_bound, env.action_bound)
        return Transition(observation, bounded, truncated, self.observation, x)

    def draw(self) -> Draws:
        """Draws the random numbers of a step, arm by arm.

        Each step draws the same count of numbers, so that arms with equal seeds stay paired.
        """
        replicates = len(self.state.x) // len(self.noise)
        obs, d = self.world.emission.weight.shape
        normal = torch.empty(len(self.noise), replicates, d + 2 * obs)
        start = torch.empty(len(self.noise), replicates, d)
        for normal_of_arm, start_of_arm, generator in zip(normal, start, self.noise, strict=True):
            normal_of_arm.normal_(generator=generator)
            start_of_arm.uniform_(-1, 1, generator=generator)
        process, observation, start_observation = normal.flatten(0, 1).split([d, obs, obs], 1)
        return Draws(process, observation, start.flatten(0, 1), start_observation)

    def _restart(self, ended: Bool[Tensor, " env"], draws: Draws) -> None:
        first = self._observe(draws.start, draws.start_observation)
        x = torch.where(ended[:, None], draws.start, self.state.x)
        self.state = EnvState(x, torch.where(ended, 0, self.state.age))
        self.observation = torch.where(ended[:, None], first, self.observation)

    def _observe(
        self, x: Float[Tensor, "env d"], draws: Float[Tensor, "env obs"]
    ) -> Float[Tensor, "env obs"]:
        """Draws observations; counts arm by arm, so that they do not depend on the other arms."""
        emission = self.world.emission
        if emission.noise == "gaussian":
            return emission.sample(x, draws, self.counts[0])
        arms = zip(x.unflatten(0, (len(self.counts), -1)), self.counts, strict=True)
        return torch.cat([emission.sample(arm, None, generator) for arm, generator in arms])


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
