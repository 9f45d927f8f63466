"""rows about advantages: the original's loop, the seed's, ours, and other libraries' in one process with ours."""

from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.harness import Contestant, race
from benchmarks.peers import environment as peers
from benchmarks.peers.gae import DISCOUNT, LAMBDA, SHAPES, repeated, trace_of
from benchmarks.reference import actor_critic_parts as reference
from benchmarks.reference.actor_critic_parts import Episode, Estimate
from benchmarks.table import Goal, NotTheSame, Row
from quatrain.replay.rollouts.gae import Advantages, Trace, advantages

UNIT = "us/call"
AGREEMENT = 1e-3
SINGLE = ("T=200", "T=1000", "T=10000")
BATCHED = ("64 episodes", "[16, 128]", "[1000, 64]")


class Rows(NamedTuple):
    """Rows, and what to say about them."""

    rows: list[Row]
    notes: list[str]


def rows(root: Path, rounds: int) -> Rows:
    """One lane of one episode, many lanes with ends in them, and other libraries."""
    own = [row for name in SINGLE for row in single_rows(name, rounds)] + [batch_row(name, rounds) for name in BATCHED]
    found, notes = peers.times(root, rounds)
    return Rows(own + [row for name in SHAPES for row in peer_rows(name, found.get(name, {}))], notes)


def single_rows(name: str, rounds: int) -> list[Row]:
    """One episode, unbroken."""
    trace = trace_of(name)
    episode = episodes_of(trace)[0]
    lists = [column.tolist() for column in episode]
    refuse_others(name, trace)
    times = race(
        {
            "before": Contestant(lambda: reference.gae_before(episode, DISCOUNT, LAMBDA)),
            "floats": repeated(trace, lambda: reference.gae_floats(lists, DISCOUNT, LAMBDA)),
            "seed": Contestant(lambda: reference.gae_seed(episode, DISCOUNT, LAMBDA)),
            "ours": ours(trace),
        },
        rounds,
    )
    goal = Goal(100, "seed's way") if name == "T=1000" else None
    row = partial(Row, unit=UNIT, ours=times["ours"], seed_way=times["seed"])
    return [
        row(f"advantages, {name}", "002-4 tensor GAE", "2-3x", before=times["before"], goal=goal),
        row("  before: a list of Python's floats", "-", "-", before=times["floats"]),
    ]


def batch_row(name: str, rounds: int) -> Row:
    """Many episodes, one after another in the original."""
    trace = trace_of(name)
    each = episodes_of(trace)
    refuse_others(name, trace)
    loops = {"before": reference.gae_before, "seed": reference.gae_seed}
    times = race(
        {
            side: Contestant(lambda loop=loop: [loop(episode, DISCOUNT, LAMBDA) for episode in each])  # type: ignore[misc]
            for side, loop in loops.items()
        }
        | {"ours": ours(trace)},
        rounds,
    )
    steps = trace.rewards.numel()
    return Row(
        f"advantages, {name}: {steps} steps", "002-4 tensor GAE", "2-3x", UNIT,
        times["ours"], times["before"], times["seed"],
    )  # fmt: skip


def ours(trace: Trace) -> Contestant:
    """With what goes before: differences of values, and where episodes end."""
    return repeated(trace, lambda: advantages(trace, DISCOUNT, LAMBDA, "auto"))


def peer_rows(name: str, found: dict[str, peers.Times]) -> list[Row]:
    """Against each other library; without them there is nothing to compare."""
    if "ours" not in found:
        return []
    row = partial(Row, seed_item="002-4 tensor GAE", claimed="-", unit=UNIT, ours=found["ours"])
    return [
        row(f"advantages, {name}; before: torchrl, vectorised", before=found["torchrl"], goal=Goal(2, "before")),
        row("  before: torchrl, plain", before=found["torchrl, plain"]),
        row("  before: stable-baselines3", before=found["stable-baselines3"], goal=Goal(1, "before")),
    ]


def episodes_of(trace: Trace) -> list[Episode]:
    """The episodes of all lanes, and what is left of one at the end of a lane; the next value is 0 where it ended."""
    found = []
    next_values = trace.next_values.masked_fill(trace.terminated, 0)
    for lane in range(trace.rewards.shape[1]):
        ends = trace.terminated[:, lane].nonzero()[:, 0] + 1
        cuts = np.unique([0, *ends.tolist(), len(trace.rewards)]).tolist()
        for begin, end in pairwise(cuts):
            columns = (trace.rewards, trace.values, next_values)
            found.append(Episode(*(column[begin:end, lane].contiguous() for column in columns)))
    return found


def refuse_others(name: str, trace: Trace) -> None:
    """Both loops and the project must find the same advantages and returns.

    Raises:
        NotTheSame: they do not.
    """
    found = advantages(trace, DISCOUNT, LAMBDA, "auto")
    each = episodes_of(trace)
    for side, loop in (("before", reference.gae_before), ("the seed's way", reference.gae_seed)):
        expected = joined([loop(episode, DISCOUNT, LAMBDA) for episode in each], trace)
        for one, other in zip(found, expected, strict=True):
            if not torch.allclose(one, other, AGREEMENT, AGREEMENT):
                raise NotTheSame(f"advantages, {name}: ours are others than {side}'s")


def joined(estimates: list[Estimate], trace: Trace) -> Advantages:
    """Those of all episodes as lanes."""
    steps, lanes = trace.rewards.shape
    return Advantages(*(torch.cat(column).reshape(lanes, steps).T for column in zip(*estimates, strict=True)))
