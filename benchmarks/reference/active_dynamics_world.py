"""Vector fields evaluated as in the original: point by point, with a new interpolator per call."""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import RegularGridInterpolator

Field = Callable[[Sequence[float]], list[float]]
"""Maps one state to its velocity."""
SPAN = 2.0
JITTER = 1e-6


def limit_cycle(x: Sequence[float], w: float = 1.0, d: float = 1.0) -> list[float]:
    """Computes x (d - r^2) + w (-x2, x1)."""
    pull = d - (x[0] ** 2 + x[1] ** 2)
    return [x[0] * pull - w * x[1], x[1] * pull + w * x[0]]


class Table(NamedTuple):
    """Holds velocities [x1, x2, component] on the nodes of an even grid."""

    axes: tuple[np.ndarray, np.ndarray]
    vectors: np.ndarray

    def __call__(self, x: Sequence[float]) -> list[float]:
        """Interpolates bilinearly; constant outside the grid."""
        result = []
        for component in range(self.vectors.shape[-1]):
            interpolator = RegularGridInterpolator(self.axes, self.vectors[..., component])
            inside = [
                min(max(value, axis[0]), axis[-1]) for value, axis in zip(x, self.axes, strict=True)
            ]
            result.append(float(interpolator([inside])[0]))
        return result


class World(NamedTuple):
    """Holds the dynamics of the state and its observation."""

    field: Field
    dt: float
    process_noise: float
    action_bound: float
    escape_radius: float
    weight: list[list[float]]
    bias: list[float]
    noise_sd: float


class Step(NamedTuple):
    """Holds the step of one environment; after truncation the state is a new start."""

    state: list[float]
    observation: list[float]
    truncated: bool


class Noise(NamedTuple):
    """Holds one environment's noise: standard normal, and for a start uniform on [-1, 1]."""

    process: list[float]
    observation: list[float]
    start: list[float]
    start_observation: list[float]


def step(
    world: World, states: list[list[float]], actions: list[list[float]], noise: list[Noise]
) -> list[Step]:
    """Steps all environments, one after another."""
    result = []
    for state, action, own_noise in zip(states, actions, noise, strict=True):
        velocity = world.field(state)
        following = []
        for x, v, a, draw in zip(state, velocity, action, own_noise.process, strict=True):
            u = min(max(a, -world.action_bound), world.action_bound)
            following.append(
                x + (v + u) * world.dt + math.sqrt(world.process_noise * world.dt) * draw
            )
        if max(map(abs, following)) > world.escape_radius:
            result.append(
                Step(
                    own_noise.start,
                    observe(world, own_noise.start, own_noise.start_observation),
                    True,
                )
            )
        else:
            result.append(Step(following, observe(world, following, own_noise.observation), False))
    return result


def observe(world: World, x: Sequence[float], draws: Sequence[float]) -> list[float]:
    """Computes the observation, channel by channel."""
    channels = zip(world.weight, world.bias, draws, strict=True)
    return [
        sum(each * value for each, value in zip(row, x, strict=True)) + bias + world.noise_sd * draw
        for row, bias, draw in channels
    ]


# The table of the field with many attractors.


def kernel(nodes: np.ndarray, length: float) -> np.ndarray:
    """Computes exp(-distance^2 / 2 length^2) between nodes [node, d]."""
    squared = np.square(nodes[:, None] - nodes[None]).sum(-1)
    return np.exp(-squared / (2 * length**2))


def drawn_component(
    rng: np.random.Generator, side: int, length: float = 0.5, variance: float = 0.5
) -> np.ndarray:
    """Draws a Gaussian process on a grid [x1, x2] by the eigenvectors of its covariance."""
    axis = np.linspace(-SPAN, SPAN, side)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    values, vectors = np.linalg.eigh(kernel(nodes, length) + JITTER * np.eye(len(nodes)))
    root = vectors * np.sqrt(np.maximum(values, 0))
    return math.sqrt(variance) * (root @ rng.standard_normal(len(nodes))).reshape(side, side)


def multi_attractor(
    rng: np.random.Generator, side: int, speed: float = 0.25, w_attractor: float = 0.1
) -> Table:
    """Draws both components, scales vectors to one speed, and adds a pull to the middle."""
    axis = np.linspace(-SPAN, SPAN, side)
    nodes = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1)
    vectors = np.stack([drawn_component(rng, side) for _ in range(2)], -1)
    norms = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-8)
    pull = w_attractor * np.linalg.norm(nodes, axis=-1, keepdims=True) * nodes
    return Table((axis, axis), speed * vectors / norms - pull)
