"""advantages of an episode -> rows: the original's loop, the proposal's, and ours"""

from functools import partial

import numpy as np
import torch
from scipy.signal import lfilter

from benchmarks.harness import Goal, Row
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.torch_rows import check_same, measured_row
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
GOALS = {"T=1000": Goal(100, "seed's way")}


def rows(rounds: int) -> list[Row]:
    return [advantage_row(name, rounds) for name in SHAPES if name.startswith("T=")]


def advantage_row(name: str, rounds: int) -> Row:
    """Measures one length of an episode that is still running at its end."""
    trace = trace_of(name)
    columns = (column[:, 0] for column in (trace.rewards, trace.values, trace.next_values))
    episode = reference.Episode(*columns)
    settings = (DISCOUNT, LAMBDA)
    works = {
        "before": partial(reference.gae_before, episode, *settings),
        "seed_way": partial(reference.gae_seed, episode, *settings),
        "ours": partial(advantages, trace, *settings, "auto"),
        "without": partial(advantages, trace, *settings, "loop"),
    }
    ours = [column[:, 0] for column in works["ours"]()]
    check_same(f"advantages, {name}", ours, list(works["before"]()), atol=1e-3)
    backwards = np.ascontiguousarray(trace.rewards.numpy()[::-1])
    recurrence = np.ones(1, np.float32), np.array([1, -DISCOUNT * LAMBDA], np.float32)
    works["limit"] = partial(lfilter, *recurrence, backwards, axis=0)
    return measured_row(
        "us/call",
        rounds,
        f"advantages, {name}; limit: the recurrence alone, in C",
        works,
        "the filter: a loop over steps",
        alike=("before", "seed_way"),
        goal=GOALS.get(name),
        claims=("colony-4",),
    )


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
