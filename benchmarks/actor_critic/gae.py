"""rows about advantages: the original's loop, the proposal's, and ours."""

from itertools import pairwise

import numpy as np
import torch
from scipy.signal import lfilter

from benchmarks.harness import Contestant, race
from benchmarks.peers.gae import DISCOUNT, LAMBDA, trace_of
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.actor_critic_parts import Episode
from benchmarks.repeat import repeat
from benchmarks.table import Goal, NotTheSame, Point, Row, Without
from quatrain.replay.rollouts.gae import Implementation, Trace, advantages

UNIT = "us/call"
AGREEMENT = 1e-3
SINGLE = ("T=200", "T=1000", "T=10000")
BATCHED = ("64 episodes", "[16, 128]", "[1000, 64]")
PLAIN_STEPS = 1000
"""Of many episodes, that a plain loop goes through in a call: the first ones, counted up."""


def rows(rounds: int) -> list[Row]:
    """Measures one environment with one episode, and many environments with several episodes."""
    singles = [row for name in SINGLE for row in single_rows(name, rounds)]
    return singles + [batch_row(name, rounds) for name in BATCHED]


def single_rows(name: str, rounds: int) -> list[Row]:
    """Measures one uninterrupted episode."""
    trace = trace_of(name)
    episode = episodes_of(trace)[0]
    lists = [column.tolist() for column in episode]
    refuse_others(name, trace)
    times = race(
        {
            "before": Contestant(lambda: reference.gae_before(episode, DISCOUNT, LAMBDA)),
            "floats": repeat(lambda: reference.gae_floats(lists, DISCOUNT, LAMBDA)),
            "seed": Contestant(lambda: reference.gae_seed(episode, DISCOUNT, LAMBDA)),
            "ours": ours(trace),
            "loop": ours(trace, "loop"),
            "limit": recurrence(trace),
        },
        rounds,
    )
    steps = trace.rewards.numel()
    return [
        Row(
            f"advantages, {name}; limit: the recurrence alone, in C", UNIT,
            times["ours"], times["before"], times["seed"], times["limit"],
            Without("the filter: a loop over steps", times["loop"]),
            Goal(100, "seed's way") if name == "T=1000" else None, ("colony-4",),
            point=Point("advantages of an episode", "steps", steps),
        ),
        Row("  before: a list of Python's floats", UNIT, times["ours"], times["floats"],
            times["seed"]),
    ]  # fmt: skip


def batch_row(name: str, rounds: int) -> Row:
    """Measures many episodes, which the original processes one after another."""
    trace = trace_of(name)
    refuse_others(name, trace)
    each, share = first_of(episodes_of(trace))
    loops = {"before": reference.gae_before, "seed": reference.gae_seed}
    times = race(
        {
            side: Contestant(
                lambda loop=loop: [loop(episode, DISCOUNT, LAMBDA) for episode in each], share
            )  # type: ignore[misc]
            for side, loop in loops.items()
        }
        | {"ours": ours(trace), "limit": recurrence(trace), "lanes": env_by_env(trace)},
        rounds,
    )
    note = "" if share == 1 else f"; before, seed's way: {len(each)} episodes, counted up"
    return Row(
        f"advantages, {name}: {trace.rewards.numel()} steps{note}", UNIT,
        times["ours"], times["before"], times["seed"], times["limit"],
        Without("lanes side by side: one after another", times["lanes"]), claims=("colony-4",),
    )  # fmt: skip


def ours(trace: Trace, how: Implementation = "auto") -> Contestant:
    """Computes the project's advantages, temporal differences and episode ends included."""
    return repeat(lambda: advantages(trace, DISCOUNT, LAMBDA, how))


def env_by_env(trace: Trace) -> Contestant:
    """Loops over the steps of each environment; of many, times the first ones and extrapolates."""
    steps, envs = trace.rewards.shape
    some = max(1, min(envs, PLAIN_STEPS // steps))
    each = [
        Trace(*(column[:, env : env + 1].contiguous() for column in trace)) for env in range(some)
    ]
    return repeat(lambda: [advantages(env, DISCOUNT, LAMBDA, "loop") for env in each], some / envs)


def recurrence(trace: Trace) -> Contestant:
    """Computes A_t = r_t + c A_{t+1} for all environments, without its inputs."""
    backwards = np.ascontiguousarray(trace.rewards.numpy()[::-1])
    numerator, denominator = np.ones(1, np.float32), np.array([1, -DISCOUNT * LAMBDA], np.float32)
    return repeat(lambda: lfilter(numerator, denominator, backwards, axis=0))


def first_of(episodes: list[Episode]) -> tuple[list[Episode], float]:
    """Returns as many episodes as make up PLAIN_STEPS, and their share of all steps."""
    sizes = np.cumsum([len(episode.rewards) for episode in episodes])
    count = min(int(np.searchsorted(sizes, PLAIN_STEPS)) + 1, len(episodes))
    return episodes[:count], float(sizes[count - 1] / sizes[-1])


def episodes_of(trace: Trace) -> list[Episode]:
    """Returns the episodes of all environments, unfinished ones included; the next value is 0 where
    an episode ended.
    """
    result = []
    next_values = trace.next_values.masked_fill(trace.terminated, 0)
    for env in range(trace.rewards.shape[1]):
        ends = trace.terminated[:, env].nonzero()[:, 0] + 1
        cuts = np.unique([0, *ends.tolist(), len(trace.rewards)]).tolist()
        for begin, end in pairwise(cuts):
            columns = (trace.rewards, trace.values, next_values)
            result.append(Episode(*(column[begin:end, env].contiguous() for column in columns)))
    return result


def refuse_others(name: str, trace: Trace) -> None:
    """Checks that both loops and the project compute the same advantages and returns of the timed
    episodes.

    Raises:
        NotTheSame: they do not.
    """
    result = advantages(trace, DISCOUNT, LAMBDA, "auto")
    each, _ = first_of(episodes_of(trace))
    for side, loop in (("before", reference.gae_before), ("the seed's way", reference.gae_seed)):
        expected = zip(*(loop(episode, DISCOUNT, LAMBDA) for episode in each), strict=True)
        for item, others in zip(result, expected, strict=True):
            other = torch.cat(others)
            if not torch.allclose(item.T.flatten()[: len(other)], other, AGREEMENT, AGREEMENT):
                raise NotTheSame(f"advantages, {name}: ours are others than {side}'s")
