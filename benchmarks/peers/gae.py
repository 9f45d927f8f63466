"""rounds -> rows about advantages: torchrl and stable-baselines3 against this project

Episodes terminate and are never truncated: stable-baselines3 has no truncation.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Goal, NotTheSame, Row, race, repeat
from quatrain.replay.rollouts.gae import Trace, advantages

DISCOUNT, LAMBDA = 0.97, 0.95
SEED = 0
MEAN_LENGTH = 60
"""Steps of an episode in a lane of many."""
SHAPES: dict[str, tuple[int, int]] = {
    "T=200": (200, 1),
    "T=1000": (1000, 1),
    "T=10000": (10_000, 1),
    "64 episodes": (39_656, 1),
    "[16, 128]": (16, 128),
    "[1000, 64]": (1000, 64),
    "[128, 1024]": (128, 1024),
}
"""Steps and lanes; the first three are one episode that has not ended."""
TRIED = "few steps of many lanes: NumPy's loop over steps is what stable-baselines3 runs, too"
GOALS = {"torchrl, vectorised": 2.0, "stable-baselines3": 1.0}


def trace_of(name: str) -> Trace:
    """Draws random rewards and values; the next value is that of the next row, as in a rollout."""
    generator = torch.Generator().manual_seed(SEED)
    steps, lanes = SHAPES[name]
    rewards = torch.randn(steps, lanes, generator=generator)
    values = torch.randn(steps + 1, lanes, generator=generator)
    ended = torch.zeros(steps, lanes, dtype=torch.bool)
    if name == "64 episodes":
        ended[torch.randperm(steps - 1, generator=generator)[:63]] = True
        ended[-1] = True
    elif lanes > 1:
        ended = torch.rand(steps, lanes, generator=generator) < 1 / MEAN_LENGTH
    return Trace(rewards, values[:-1].clone(), values[1:].clone(), ended, torch.zeros_like(ended))


def rows(libraries: Collection[str], rounds: int) -> list[Row]:
    """Compares every shape with each available library."""
    return [row for shape in SHAPES for row in shape_rows(shape, libraries, rounds)]


def shape_rows(shape: str, libraries: Collection[str], rounds: int) -> list[Row]:
    name, trace = f"advantages, {shape}", trace_of(shape)
    sides = contestants(trace, libraries)
    refuse_others(name, sides)
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


def contestants(trace: Trace, libraries: Collection[str]) -> dict[str, Callable[[], Any]]:
    """Builds all contestants; each gets its arrays in its own layout and returns [steps, lanes]."""
    makers = {"torchrl, vectorised": torchrl, "stable-baselines3": stable_baselines3}
    ours = {"ours": lambda: advantages(trace, DISCOUNT, LAMBDA, "auto").advantage}
    return ours | {
        side: make(trace) for side, make in makers.items() if side.partition(",")[0] in libraries
    }


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


def refuse_others(name: str, sides: Mapping[str, Callable[[], Any]]) -> None:
    """Raises NotTheSame unless all contestants find the same advantages."""
    expected = sides["ours"]()
    for side, work in sides.items():
        if not np.allclose(work(), expected, rtol=1e-3, atol=1e-3):
            raise NotTheSame(f"{name}: ours are others than those of {side}")
