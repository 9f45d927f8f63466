"""advantages of an episode -> rows: the original's loop, the proposal's, and ours"""

from functools import partial

import numpy as np
from scipy.signal import lfilter

from benchmarks.harness import Goal, Point, Row
from benchmarks.peers.gae import DISCOUNT, LAMBDA, trace_of
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.torch_rows import check_same, measured_row
from quatrain.replay.rollouts.gae import advantages

SHAPES = ("T=200", "T=1000", "T=10000")
GOALS = {"T=1000": Goal(100, "seed's way")}


def rows(rounds: int) -> list[Row]:
    return [advantage_row(name, rounds) for name in SHAPES]


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
        point=Point("advantages of an episode", "steps", len(trace.rewards)),
    )
