"""states, pushes -> the next states of a pole on a cart that runs on a circle, deterministic and
batched.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from torch import Generator, Tensor

POLE_MASS = 0.1
TOTAL_MASS = 1.1
LENGTH = 1.0
GRAVITY = 9.8
# Metres: the track is as long as the straight track of the classic task.
RADIUS = 4.8 / (2 * math.pi)
# Seconds.
STEP = 0.01
GREATEST_PUSH = 30.0
CART_FRICTION = 0.05
POLE_FRICTION = 0.01
SPREAD = 0.05

# phi, phi', theta, theta': angle of the cart on the circle, and of the pole, 0 upright; both
# unwrapped.
States = Float[Tensor, "env 4"]
ObservationKind = Literal["full", "partial", "angles"]


def reset(envs: int, generator: Generator) -> States:
    """Draws states with phi 0 and the others uniform in ±0.05."""
    states = SPREAD * (2 * torch.rand(envs, 4, generator=generator) - 1)
    states[:, 0] = 0.0
    return states


def step(states: States, action: Float[Tensor, "env 1"]) -> States:
    """Updates velocities, then positions with the new velocities; clamps actions to -1..1."""
    phi, phi_speed, theta, theta_speed = states.unbind(1)
    sin = theta.sin()
    cos = theta.cos()
    swing = POLE_MASS * LENGTH
    force = GREATEST_PUSH * action[:, 0].clamp(-1, 1) - CART_FRICTION * RADIUS * phi_speed
    thrust = (force + swing * theta_speed.square() * sin) / TOTAL_MASS
    torque = GRAVITY * sin - cos * thrust - POLE_FRICTION * theta_speed / swing
    inertia = LENGTH * (4 / 3 - POLE_MASS * cos.square() / TOTAL_MASS)
    theta_acceleration = torque / inertia
    phi_acceleration = (thrust - swing * theta_acceleration * cos / TOTAL_MASS) / RADIUS
    phi_speed = phi_speed + STEP * phi_acceleration
    theta_speed = theta_speed + STEP * theta_acceleration
    return torch.stack(
        [
            phi + STEP * phi_speed,
            phi_speed,
            theta + STEP * theta_speed,
            theta_speed,
        ],
        1,
    )


def observe(states: States, kind: ObservationKind) -> Float[Tensor, "env obs"]:
    """Returns full: sin phi, cos phi, phi', sin theta, cos theta, theta'; partial: no speeds;
    angles: phi, theta.
    """
    phi, phi_speed, theta, theta_speed = states.unbind(1)
    columns = {
        "full": [phi.sin(), phi.cos(), phi_speed, theta.sin(), theta.cos(), theta_speed],
        "partial": [phi.sin(), phi.cos(), theta.sin(), theta.cos()],
        "angles": [phi, theta],
    }
    return torch.stack(columns[kind], 1)
