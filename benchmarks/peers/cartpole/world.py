"""CartPole-v1 of gymnasium as a pure function: physics, limits, 500 steps, reset after an end"""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jaxtyping import Bool, Float32, Int32

GRAVITY, FORCE, SECONDS_A_STEP = 9.8, 10.0, 0.02
CART_MASS, POLE_MASS, HALF_POLE = 1.0, 0.1, 0.5
MASS = CART_MASS + POLE_MASS
TRACK, LEANING = 2.4, 12 * 2 * math.pi / 360
"""Where an episode ends: the cart's distance from the middle, and the pole's angle."""
MOST_STEPS = 500
START = 0.05
"""Largest absolute value of a number of a first observation."""


class Worlds(NamedTuple):
    """Holds the state of some environments."""

    obs: Float32[Array, "lanes 4"]  # position, velocity, angle, angular velocity
    step: Int32[Array, "lanes"]  # within the episode, from 0


class Stepped(NamedTuple):
    """Holds the result of a step."""

    worlds: Worlds  # after an end: the next start
    obs: Float32[Array, "lanes 4"]  # after an end: the last one
    rewards: Float32[Array, "lanes"]
    terminated: Bool[Array, "lanes"]
    truncated: Bool[Array, "lanes"]


def reset(starts: Float32[Array, "lanes 4"]) -> Worlds:
    return Worlds(starts, jnp.zeros(len(starts), jnp.int32))


def starts_of(uniforms: Float32[Array, "*any 4"]) -> Float32[Array, "*any 4"]:
    """Computes first observations from numbers between 0 and 1."""
    return (2 * uniforms - 1) * START


def step(
    worlds: Worlds, actions: Int32[Array, "lanes"], starts: Float32[Array, "lanes 4"]
) -> Stepped:
    """Pushes each cart to the right (1) or left (0); an ended episode restarts from `starts`."""
    observed, steps = moved(worlds.obs, actions), worlds.step + 1
    terminated = (jnp.abs(observed[:, 0]) > TRACK) | (jnp.abs(observed[:, 2]) > LEANING)
    truncated = steps >= MOST_STEPS
    ended = terminated | truncated
    following = Worlds(jnp.where(ended[:, None], starts, observed), jnp.where(ended, 0, steps))
    return Stepped(following, observed, jnp.ones_like(observed[:, 0]), terminated, truncated)


def moved(
    observed: Float32[Array, "lanes 4"], actions: Int32[Array, "lanes"]
) -> Float32[Array, "lanes 4"]:
    """Takes one step of Euler's method (https://coneural.org/florian/papers/05_cart_pole.pdf)."""
    angle, spin = observed[:, 2], observed[:, 3]
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    push = (jnp.where(actions == 1, FORCE, -FORCE) + POLE_MASS * HALF_POLE * spin**2 * sine) / MASS
    length = HALF_POLE * (4 / 3 - POLE_MASS * cosine**2 / MASS)
    spin_change = (GRAVITY * sine - cosine * push) / length
    speed_change = push - POLE_MASS * HALF_POLE * spin_change * cosine / MASS
    change = jnp.stack([observed[:, 1], speed_change, spin, spin_change], axis=1)
    return observed + SECONDS_A_STEP * change
