"""A pole on a cart that runs on a circle: states, pushes -> the next states, all rows at once and without chance."""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

POLE_MASS, TOTAL_MASS, LENGTH, GRAVITY = 0.1, 1.1, 1.0, 9.8
RADIUS = 4.8 / (2 * math.pi)
"""Metres, of a track as long as the straight one of the classic task."""
STEP = 0.01
"""Seconds."""
GREATEST_PUSH = 30.0
CART_FRICTION, POLE_FRICTION = 0.05, 0.01
SPREAD = 0.05

States = Float[Tensor, "row 4"]
"""phi, phi', theta, theta': where the cart is on the circle, and the pole's angle, 0 upright; neither is wrapped."""
ObservationKind = Literal["full", "partial", "angles"]


def reset(rows: int, generator: Generator) -> States:
    """phi 0, the others uniform in ±0.05."""
    states = SPREAD * (2 * torch.rand(rows, 4, generator=generator) - 1)
    states[:, 0] = 0.0
    return states


def step(states: States, action: Float[Tensor, "row 1"]) -> States:
    """Velocities first, then positions with the new velocities; a push outside -1..1 acts as the nearest within."""
    phi, phi_speed, theta, theta_speed = states.unbind(1)
    sin, cos = theta.sin(), theta.cos()
    swing = POLE_MASS * LENGTH
    force = GREATEST_PUSH * action[:, 0].clamp(-1, 1) - CART_FRICTION * RADIUS * phi_speed
    pushed = (force + swing * theta_speed.square() * sin) / TOTAL_MASS
    torque = GRAVITY * sin - cos * pushed - POLE_FRICTION * theta_speed / swing
    theta_speedup = torque / (LENGTH * (4 / 3 - POLE_MASS * cos.square() / TOTAL_MASS))
    phi_speedup = (pushed - swing * theta_speedup * cos / TOTAL_MASS) / RADIUS
    phi_speed, theta_speed = phi_speed + STEP * phi_speedup, theta_speed + STEP * theta_speedup
    return torch.stack(
        [phi + STEP * phi_speed, phi_speed, theta + STEP * theta_speed, theta_speed], 1
    )


def observe(states: States, seen: ObservationKind) -> Float[Tensor, "row obs"]:
    """full: sin phi, cos phi, phi', sin theta, cos theta, theta'; partial: without speeds; angles: phi, theta."""
    phi, phi_speed, theta, theta_speed = states.unbind(1)
    columns = {
        "full": [phi.sin(), phi.cos(), phi_speed, theta.sin(), theta.cos(), theta_speed],
        "partial": [phi.sin(), phi.cos(), theta.sin(), theta.cos()],
        "angles": [phi, theta],
    }
    return torch.stack(columns[seen], 1)
