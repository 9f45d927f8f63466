"""Environments of a user, written in JAX, whose values are known."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Params:
    length: int = 3
    max_steps_in_episode: int = 6


class Space(NamedTuple):
    n: int


class Laps:
    """Walks around a circle of cells, by the action; pays 1 for the last cell; shows the cell and a
    draw of the episode.

    The episode ends there with a chance of a half, or by time, which `done` does not tell apart.
    """

    default_params = Params()

    def action_space(self, params: Params) -> Space:  # noqa: ARG002
        return Space(2)

    def reset_env(self, key: jax.Array, params: Params) -> Any:
        state = {"place": jnp.int32(0), "time": 0, "draw": jax.random.uniform(key)}
        return self.observed(state, params), state

    def step_env(self, key: jax.Array, state: Any, action: jax.Array, params: Params) -> Any:
        place = (state["place"] + action) % params.length
        pays = (place == params.length - 1) & (action == 1)
        state = state | {"place": place, "time": state["time"] + 1}
        ends = pays & jax.random.bernoulli(key)
        return self.observed(state, params), state, pays * 1.0, self.done(ends, state, params), {}

    def done(self, ends: jax.Array, state: Any, params: Params) -> jax.Array:
        return ends | (state["time"] >= params.max_steps_in_episode)

    def observed(self, state: Any, params: Params) -> Any:
        return {"cell": jax.nn.one_hot(state["place"], params.length), "draw": state["draw"]}


class Telling(Laps):
    """Tells a time limit from another end, as gymnax 1.0 does."""

    def done(self, ends: jax.Array, _state: Any, _params: Params) -> jax.Array:
        return ends

    def is_truncated(self, state: Any, params: Params) -> jax.Array:
        return state["time"] >= params.max_steps_in_episode


class Wrapped:
    """Begins the next episode by itself, and shows the last observation beside it; its class has no
    `step_env`.
    """

    default_params = Params()

    def __init__(self) -> None:
        self.env = Telling()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, key: jax.Array, params: Params) -> Any:
        return self.env.reset_env(key, params)

    def step(self, key: jax.Array, state: Any, action: jax.Array, params: Params) -> Any:
        obs, state, reward, terminated, _ = self.env.step_env(key, state, action, params)
        truncated = self.env.is_truncated(state, params)
        begun, first = self.reset(key, params)
        ended = terminated | truncated
        shown, state = jax.tree.map(
            lambda new, old: jnp.where(ended, new, old), (begun, first), (obs, state)
        )
        return shown, state, reward, terminated, truncated, {"final_observation": obs}


class Endless(Laps):
    """Has no limit of steps."""

    default_params = 3


class Grows(Laps):
    """Changes what its state is made of."""

    def step_env(self, *arguments: Any) -> Any:
        obs, state, *rest = super().step_env(*arguments)
        return obs, state | {"time": state["time"] * 1.0}, *rest


class Continuous(Laps):
    def action_space(self, params: Params) -> Any:
        return params


class Overflows(Laps):
    """Pays what no number holds from some step on."""

    def __init__(self, step: int = 2) -> None:
        self.step_number = step

    def step_env(self, *arguments: Any) -> Any:
        obs, state, reward, *rest = super().step_env(*arguments)
        return obs, state, jnp.where(state["time"] >= self.step_number, jnp.inf, reward), *rest


def pair() -> tuple[Laps, Params]:
    """Returns an environment with its parameters, as `gymnax.make` does."""
    return Laps(), Params(max_steps_in_episode=4)


def no_env() -> int:
    return 3
