"""rounds -> times of advantages by other libraries and by this project, as JSON; runs where those are installed.

The libraries are in an environment of their own (`environment.py`), so ours is timed there too, in turn with
them. Episodes end, but none is cut: stable-baselines3 knows no other end.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.harness import Contestant, race
from benchmarks.table import NotTheSame
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
}
"""Steps and lanes; the first three are one episode that has not ended."""


def trace_of(name: str) -> Trace:
    """Random rewards and values; the next value is the next row's, as in a rollout."""
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


def repeated(trace: Trace, work: Callable[[], Any]) -> Contestant:
    """Short work, some times over."""
    repeats = max(1, min(20, 20_000 // len(trace.rewards)))

    def run() -> Any:
        return [work() for _ in range(repeats)]

    return Contestant(run, repeats)


def contestants(trace: Trace) -> dict[str, Contestant]:
    """All of them from arrays in the form that each wants."""
    from torchrl.objectives.value import functional

    of_batch = [column.T[..., None].contiguous() for column in trace[:4]]
    rewards, values, next_values, terminated = of_batch
    arguments = (DISCOUNT, LAMBDA, values, next_values, rewards, terminated, terminated)
    buffer = stable_baselines3_buffer(trace)
    last_values, ended = trace.next_values[-1], trace.terminated[-1].numpy()
    sides = {
        "ours": lambda: advantages(trace, DISCOUNT, LAMBDA, "auto"),
        "torchrl": lambda: functional.vec_generalized_advantage_estimate(*arguments),
        "torchrl, plain": lambda: functional.generalized_advantage_estimate(*arguments),
        "stable-baselines3": lambda: buffer.compute_returns_and_advantage(last_values, ended),
    }
    return {side: repeated(trace, work) for side, work in sides.items()}


def stable_baselines3_buffer(trace: Trace) -> Any:
    """A rollout buffer that is full."""
    from gymnasium.spaces import Box
    from stable_baselines3.common.buffers import RolloutBuffer

    steps, lanes = trace.rewards.shape
    space = Box(-1, 1, (1,), np.float32)
    buffer = RolloutBuffer(steps, space, space, "cpu", LAMBDA, DISCOUNT, lanes)
    buffer.rewards[:], buffer.values[:] = trace.rewards.numpy(), trace.values.numpy()
    buffer.episode_starts[1:] = trace.terminated[:-1].numpy()
    return buffer


def refuse_others(name: str, trace: Trace) -> None:
    """All must find the same advantages.

    Raises:
        NotTheSame: they do not.
    """
    sides = contestants(trace)
    expected = advantages(trace, DISCOUNT, LAMBDA, "auto").advantage
    for side in ("torchrl", "torchrl, plain"):
        found: Any = sides[side].run()
        if not torch.allclose(found[0][0][..., 0].T, expected, rtol=1e-3, atol=1e-3):
            raise NotTheSame(f"advantages, {name}: ours are others than those of {side}")
    buffer = stable_baselines3_buffer(trace)
    buffer.compute_returns_and_advantage(trace.next_values[-1], trace.terminated[-1].numpy())
    if not np.allclose(buffer.advantages, expected, rtol=1e-3, atol=1e-3):
        raise NotTheSame(f"advantages, {name}: ours are others than those of stable-baselines3")


def main() -> None:
    rounds, threads, names = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] or SHAPES
    torch.set_num_threads(threads)
    found = {}
    for name in names:
        trace = trace_of(name)
        refuse_others(name, trace)
        found[name] = {side: times.seconds.tolist() for side, times in race(contestants(trace), rounds).items()}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    assert os.environ.get("OMP_WAIT_POLICY") == "PASSIVE"
    main()
