"""rounds -> rows about advantages: torchrl and stable-baselines3 against this project

Episodes terminate and are never truncated: stable-baselines3 has no truncation.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.actor_critic.parts import DISCOUNT, LAMBDA, SHAPES, trace_of
from benchmarks.harness import Goal, Row, race, repeat
from benchmarks.jax_work import refuse_difference
from quatrain.replay.rollouts.gae import Trace, advantages

TRIED = "few steps of many lanes: NumPy's loop over steps is what stable-baselines3 runs, too"
GOALS = {"torchrl, vectorised": 2.0, "stable-baselines3": 1.0}


def rows(rounds: int) -> list[Row]:
    """Compares every shape with each library."""
    return [row for shape in SHAPES for row in shape_rows(shape, rounds)]


def shape_rows(shape: str, rounds: int) -> list[Row]:
    """Compares one shape; each side has its arrays in its own layout and returns [steps, lanes]."""
    name, trace = f"advantages, {shape}", trace_of(shape)
    sides: dict[str, Callable[[], Any]] = {
        "ours": lambda: advantages(trace, DISCOUNT, LAMBDA, "auto").advantage,
        "torchrl, vectorised": torchrl(trace),
        "stable-baselines3": stable_baselines3(trace),
    }
    refuse_difference(name, {side: work() for side, work in sides.items()}, 1e-3, 1e-3)
    times = race({side: repeat(work) for side, work in sides.items()}, rounds)
    row = Row(name, "us/call", times.pop("ours"))
    return [
        row._replace(
            before=before,
            goal=Goal(GOALS[side], "before"),
            against=side,
            tried=TRIED if side == "stable-baselines3" else "",
        )
        for side, before in times.items()
    ]


def torchrl(trace: Trace) -> Callable[[], Any]:
    """Returns its vectorised function (its plain one is slower), with lanes first, then time, and
    an axis of features.
    """
    from torchrl.objectives.value import functional

    columns = [column.T[..., None].contiguous() for column in trace[:4]]
    rewards, values, next_values, terminated = columns
    arguments = (DISCOUNT, LAMBDA, values, next_values, rewards, terminated, terminated)
    estimate = functional.vec_generalized_advantage_estimate
    return lambda: estimate(*arguments)[0][..., 0].T


def stable_baselines3(trace: Trace) -> Callable[[], Any]:
    """Fills its buffer of a full rollout."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, lanes = trace.rewards.shape
    space = Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, "cpu", LAMBDA, DISCOUNT, lanes)
    buffer.rewards[:], buffer.values[:] = trace.rewards.numpy(), trace.values.numpy()
    buffer.episode_starts[1:] = trace.terminated[:-1].numpy()
    last_values, terminated = trace.next_values[-1], trace.terminated[-1].numpy()

    def fill() -> np.ndarray:
        buffer.compute_returns_and_advantage(last_values, terminated)
        return buffer.advantages

    return fill
