"""rounds -> rows about advantages: torchrl and stable-baselines3 against this project

Episodes terminate and are never truncated: stable-baselines3 has no truncation.
"""

from collections.abc import Callable, Collection
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Goal, NotTheSame, Row, race
from benchmarks.repeat import repeat
from quatrain.replay.rollouts.gae import Trace, advantages

DISCOUNT, LAMBDA = 0.97, 0.95
SEED = 0
MEAN_LENGTH = 60
"""Steps of an episode in a lane of many."""
LENGTHS = 39_656
SHAPES: dict[str, tuple[int, int]] = {
    "T=200": (200, 1),
    "T=1000": (1000, 1),
    "T=10000": (10_000, 1),
    "64 episodes": (LENGTHS, 1),
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
        ends = torch.randperm(steps - 1, generator=generator)[:63]
        ended[ends] = True
        ended[-1] = True
    elif lanes > 1:
        ended = torch.rand(steps, lanes, generator=generator) < 1 / MEAN_LENGTH
    return Trace(rewards, values[:-1].clone(), values[1:].clone(), ended, torch.zeros_like(ended))


def rows(libraries: Collection[str], rounds: int) -> list[Row]:
    """Compares every shape with each available library."""
    result = []
    for name in SHAPES:
        trace = trace_of(name)
        sides = contestants(trace, libraries)
        refuse_others(name, trace, sides)
        times = race({side: repeat(work) for side, work in sides.items()}, rounds)
        result += [
            Row(
                f"advantages, {name}; before: {side}",
                "us/call",
                times["ours"],
                times[side],
                goal=Goal(GOALS[side], "before") if side in GOALS else None,
                against=side.partition(",")[0],
                tried=TRIED if side == "stable-baselines3" else "",
            )
            for side in times
            if side != "ours"
        ]
    return result


def contestants(trace: Trace, libraries: Collection[str]) -> dict[str, Callable[[], Any]]:
    """Builds all contestants; each gets its arrays in its own layout and returns [steps, lanes]."""
    result: dict[str, Callable[[], Any]] = {
        "ours": lambda: advantages(trace, DISCOUNT, LAMBDA, "auto").advantage
    }
    if "torchrl" in libraries:
        result["torchrl, vectorised"] = torchrl_contestant(trace)
    if "stable-baselines3" in libraries:
        buffer = stable_baselines3_buffer(trace)
        last_values = trace.next_values[-1]
        terminated = trace.terminated[-1].numpy()

        def fill() -> np.ndarray:
            buffer.compute_returns_and_advantage(last_values, terminated)
            return buffer.advantages

        result["stable-baselines3"] = fill
    return result


def torchrl_contestant(trace: Trace) -> Callable[[], Any]:
    """Returns its vectorised function (its plain one is slower), with lanes first, then time, and
    an axis of features.
    """
    from torchrl.objectives.value import functional

    columns = [column.T[..., None].contiguous() for column in trace[:4]]
    rewards, values, next_values, terminated = columns
    arguments = (DISCOUNT, LAMBDA, values, next_values, rewards, terminated, terminated)
    estimate = functional.vec_generalized_advantage_estimate
    return lambda: estimate(*arguments)[0][..., 0].T


def stable_baselines3_buffer(trace: Trace) -> Any:
    """Returns a full rollout buffer."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, lanes = trace.rewards.shape
    space = Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, "cpu", LAMBDA, DISCOUNT, lanes)
    buffer.rewards[:], buffer.values[:] = trace.rewards.numpy(), trace.values.numpy()
    buffer.episode_starts[1:] = trace.terminated[:-1].numpy()
    return buffer


def refuse_others(name: str, trace: Trace, sides: dict[str, Callable[[], Any]]) -> None:
    """Checks that all contestants find the same advantages.

    Raises:
        NotTheSame: they do not.
    """
    expected = advantages(trace, DISCOUNT, LAMBDA, "auto").advantage
    for side, work in sides.items():
        if not np.allclose(work(), expected, rtol=1e-3, atol=1e-3):
            raise NotTheSame(f"advantages, {name}: ours are others than those of {side}")
