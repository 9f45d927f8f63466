"""actions -> transitions: the systems whose field is learned, one protocol for all of them

A vector field of this project moves many environments at once. Recorded rollouts replay their own
actions. A user's Gymnasium environment (`user_env`) is one environment.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32
from torch import Generator, Tensor

from quatrain.envs.vector_field import world as worlds
from quatrain.envs.vector_field.world import EnvState, World
from quatrain.replay.windows import Transition


@runtime_checkable
class System(Protocol):
    """Describes environments that step together; time step and bounds are those of `config.env`.

    observation: what is observed now, y. x, final_x: true states now, and after the last transition
    before a reset; no columns where they are unknown.
    """

    @property
    def name(self) -> str: ...

    @property
    def action_size(self) -> int: ...

    @property
    def observation(self) -> Float[Tensor, "env obs"]: ...

    @property
    def x(self) -> Float[Tensor, "env d"]: ...

    @property
    def final_x(self) -> Float[Tensor, "env d"]: ...

    def reset(self) -> None:
        """Starts new episodes."""

    def step(self, action: Float[Tensor, "env action"]) -> Transition:
        """Makes one transition; where an episode ended, the next one has begun."""


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

    def part(self, first: int, last: int) -> "Rollouts":
        """Returns the transitions first <= i < last."""
        return Rollouts(
            *(column[:, first : last + (column.shape[1] > self.transitions)] for column in self)
        )


def record(system: System, act: Callable[[int], Tensor], count: int) -> Rollouts:
    """Records transitions from the current observation on; `act` is given the number of each."""
    observations, states = [system.observation], [system.x]
    steps, final = [], []
    for time in range(count):
        steps.append(system.step(act(time)))
        observations.append(system.observation)
        states.append(system.x)
        final.append(system.final_x)

    def column(values: Iterable[Tensor]) -> np.ndarray:
        return torch.stack(list(values), 1).numpy(force=True)

    return Rollouts(
        observations=column(observations),
        next_observations=column(step.observation for step in steps),
        actions=column(step.action for step in steps),
        states=column(states),
        next_states=column(final),
        truncated=column(step.truncated for step in steps),
    )


@dataclass
class FieldSystem:
    """Moves states along a vector field; actions are clipped to its bound.

    Environments are those of arms, arm by arm, with as many replicates each, which draw from the
    arm's generators: `noise`, and `counts` where observations are counts.
    """

    world: World
    state: EnvState
    observation: Float[Tensor, "env obs"]
    noise: list[Generator]
    counts: list[Generator]

    name = "vector field"

    @property
    def action_size(self) -> int:
        return self.world.env.action_size

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
        self.state, self.observation = worlds.reset(self.world, self._draw(), self.counts)
        self.final_x = self.x

    def start_at(self, x: Float[Tensor, "env d"]) -> None:
        """Starts new episodes at states instead of random ones."""
        self.state = EnvState(x, torch.zeros_like(self.state.age))
        self.observation = self.world.emission.sample(x, None, self.noise[0])

    def step(self, action: Float[Tensor, "env action"]) -> Transition:
        bound = self.world.env.action_bound
        stepped = worlds.step(self.world, self.state, action, self._draw(), self.counts)
        self.state, self.observation, self.final_x = stepped[:3]
        return Transition(
            stepped.final_observation,
            action.clamp(-bound, bound),
            stepped.truncated,
            stepped.observation,
        )

    def _draw(self) -> worlds.Draws:
        return worlds.draw(self.world, len(self.state.x) // len(self.noise), self.noise)


@dataclass
class Recording:
    """Replays rollouts, `copies` times side by side; its actions are the recorded ones."""

    rollouts: Rollouts
    copies: int = 1
    time: int = 0

    name = "recording"

    @property
    def action_size(self) -> int:
        return self.rollouts.actions.shape[2]

    @property
    def observation(self) -> Float[Tensor, "env obs"]:
        return self._at(self.rollouts.observations, self.time)

    @property
    def x(self) -> Float[Tensor, "env d"]:
        return self._at(self.rollouts.states, self.time)

    @property
    def final_x(self) -> Float[Tensor, "env d"]:
        return self._at(self.rollouts.next_states, self.time - 1)

    def reset(self) -> None:
        self.time = 0

    def step(self, action: Float[Tensor, "env action"] | None = None) -> Transition:  # noqa: ARG002
        """Returns the next recorded transition, whatever the action."""
        time = self.time
        self.time += 1
        return Transition(
            self._at(self.rollouts.next_observations, time),
            self._at(self.rollouts.actions, time),
            self._at(self.rollouts.truncated, time),
            self.observation,
        )

    def _at(self, column: np.ndarray, time: int) -> Tensor:
        values = torch.tensor(column[:, time])
        return values.repeat(self.copies, *[1] * (values.ndim - 1))
