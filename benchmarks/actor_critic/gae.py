"""advantages -> rows: the original's loop, the proposal's, and ours"""

from functools import partial
from itertools import pairwise

import numpy as np
import torch
from scipy.signal import lfilter

from benchmarks.harness import Goal, Point, Row
from benchmarks.peers.gae import DISCOUNT, LAMBDA, trace_of
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.actor_critic_parts import Episode
from benchmarks.torch_rows import Work, check_same, measured_row
from quatrain.replay.rollouts.gae import Advantages, Trace, advantages

SINGLE = ("T=200", "T=1000", "T=10000")
BATCHED = ("64 episodes", "[16, 128]", "[1000, 64]")
PLAIN_STEPS = 1000
"""Of many episodes, a plain loop passes the first ones in a call; the time is scaled up."""


def rows(rounds: int) -> list[Row]:
    """Measures single episodes, and environments with several."""
    return [advantage_row(name, rounds) for name in (*SINGLE, *BATCHED)]


def advantage_row(name: str, rounds: int) -> Row:
    """Measures one shape of a rollout."""
    trace = trace_of(name)
    steps, envs = trace.rewards.shape
    episodes, share = first_of(episodes_of(trace))
    by_env, env_share = env_by_env(trace)
    ours = partial(advantages, trace, DISCOUNT, LAMBDA, "auto")
    refuse_others(f"advantages, {name}", ours(), gae_of_each(reference.gae_before, episodes))
    title = f"advantages, {name}; limit: the recurrence alone, in C"
    columns = {"point": Point("advantages of an episode", "steps", steps)}
    if name == "T=1000":
        columns["goal"] = Goal(100, "seed's way")
    if name in BATCHED:
        title = f"advantages, {name}: {steps * envs} steps"
        title += f"; before, seed's way: {len(episodes)} episodes, counted up"
        columns = {}
    return measured_row(
        "us/call",
        rounds,
        title,
        {
            "before": partial(gae_of_each, reference.gae_before, episodes),
            "seed_way": partial(gae_of_each, reference.gae_seed, episodes),
            "ours": ours,
            "without": by_env,
            "limit": recurrence(trace),
        },
        "the filter: a loop over steps" if envs == 1 else "lanes side by side: one after another",
        {"before": share, "seed_way": share, "without": env_share},
        ("before", "seed_way"),
        claims=("colony-4",),
        **columns,
    )


def gae_of_each(loop: reference.Loop, episodes: list[Episode]) -> list[reference.Estimate]:
    return [loop(episode, DISCOUNT, LAMBDA) for episode in episodes]


def env_by_env(trace: Trace) -> tuple[Work, float]:
    """Returns loops over the steps of each of the first environments, and the share of these."""
    steps, envs = trace.rewards.shape
    some = max(1, min(envs, PLAIN_STEPS // steps))
    each = [Trace(*(column[:, [env]] for column in trace)) for env in range(some)]
    return lambda: [advantages(env, DISCOUNT, LAMBDA, "loop") for env in each], some / envs


def recurrence(trace: Trace) -> Work:
    """Computes A_t = r_t + c A_{t+1} for all environments, without its inputs."""
    backwards = np.ascontiguousarray(trace.rewards.numpy()[::-1])
    denominator = np.array([1, -DISCOUNT * LAMBDA], np.float32)
    return partial(lfilter, np.ones(1, np.float32), denominator, backwards, axis=0)


def first_of(episodes: list[Episode]) -> tuple[list[Episode], float]:
    """Returns as many episodes as make up PLAIN_STEPS, and their share of all steps."""
    sizes = np.cumsum([len(episode.rewards) for episode in episodes])
    count = min(int(np.searchsorted(sizes, PLAIN_STEPS)) + 1, len(episodes))
    return episodes[:count], float(sizes[count - 1] / sizes[-1])


def episodes_of(trace: Trace) -> list[Episode]:
    """Returns the episodes of all environments, unfinished ones included."""
    result = []
    columns = (trace.rewards, trace.values, trace.next_values.masked_fill(trace.terminated, 0))
    for env in range(trace.rewards.shape[1]):
        ends = trace.terminated[:, env].nonzero()[:, 0] + 1
        cuts = np.unique([0, *ends.tolist(), len(trace.rewards)]).tolist()
        for begin, end in pairwise(cuts):
            result.append(Episode(*(column[begin:end, env].contiguous() for column in columns)))
    return result


def refuse_others(what: str, ours: Advantages, estimates: list[reference.Estimate]) -> None:
    """Compares the first episodes of all environments."""
    for result, others in zip(ours, zip(*estimates, strict=True), strict=True):
        expected = torch.cat(others)
        check_same(what, result.T.flatten()[: len(expected)], expected, atol=1e-3)
