"""rounds -> rows about advantages: torchrl and stable-baselines3 against this project

Episodes terminate and are never truncated: stable-baselines3 has no truncation.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.rows import OURS, Row
from benchmarks.timing import check_same, race
from quatrain.replay.rollouts import advantages

DISCOUNT, GAE_LAMBDA = 0.97, 0.95
SHAPES = ((16, 128), (1000, 64))
"""Steps and lanes."""


class Trace(NamedTuple):
    rewards: Tensor
    values: Tensor
    next_values: Tensor
    terminated: Tensor
    truncated: Tensor


def rows(rounds: int) -> list[Row]:
    return [shape_row(rounds, *shape) for shape in SHAPES]


def shape_row(rounds: int, steps: int, lanes: int) -> Row:
    """Compares one shape; each side has its arrays in its own layout and returns [steps, lanes]."""
    work, trace = f"advantages, {steps} steps x {lanes}", trace_of(steps, lanes)
    sides: dict[str, Callable[[], Any]] = {
        OURS: lambda: advantages(*trace, DISCOUNT, GAE_LAMBDA)[0],
        "torchrl, vectorised": torchrl(trace),
        "stable-baselines3": stable_baselines3(trace),
    }
    check_same(work, {side: compute() for side, compute in sides.items()}, 1e-3, 1e-3)
    return Row(work, "us/call", race(sides, rounds))


def trace_of(steps: int, lanes: int) -> Trace:
    """Draws rewards and values; episodes of 60 steps on average end."""
    generator = torch.Generator().manual_seed(0)
    rewards = torch.randn(steps, lanes, generator=generator)
    values = torch.randn(steps + 1, lanes, generator=generator)
    ended = torch.rand(steps, lanes, generator=generator) < 1 / 60
    return Trace(rewards, values[:-1].clone(), values[1:].clone(), ended, torch.zeros_like(ended))


def torchrl(trace: Trace) -> Callable[[], Any]:
    """Returns its vectorised function (its plain one is slower), with lanes first, then time, and
    an axis of features.
    """
    from torchrl.objectives.value import functional

    columns = [column.T[..., None].contiguous() for column in trace[:4]]
    rewards, values, next_values, terminated = columns
    arguments = (DISCOUNT, GAE_LAMBDA, values, next_values, rewards, terminated, terminated)
    estimate = functional.vec_generalized_advantage_estimate
    return lambda: estimate(*arguments)[0][..., 0].T


def stable_baselines3(trace: Trace) -> Callable[[], Any]:
    """Fills its buffer of a full rollout."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, lanes = trace.rewards.shape
    space = Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, "cpu", GAE_LAMBDA, DISCOUNT, lanes)
    buffer.rewards[:], buffer.values[:] = trace.rewards.numpy(), trace.values.numpy()
    buffer.episode_starts[1:] = trace.terminated[:-1].numpy()
    last_values, terminated = trace.next_values[-1], trace.terminated[-1].numpy()

    def fill() -> np.ndarray:
        buffer.compute_returns_and_advantage(last_values, terminated)
        return buffer.advantages

    return fill
