"""memory of transitions and of a plan, as the original has them and as the project does; by processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from benchmarks.active_dynamics import planning
from benchmarks.active_dynamics.parts import ACTION, CHANNELS, LENGTH, transition_of, wrote
from benchmarks.active_dynamics.sides import beliefs_of
from benchmarks.harness import Measured
from benchmarks.reference.active_dynamics_planner import of_projection
from benchmarks.reference.active_dynamics_rollout import RecentRollout, Rollout, SeedRollout
from benchmarks.table import Row
from quatrain.models.active_dynamics.bayes_filter.learner import BayesFilterLearner
from quatrain.replay import windows

TRANSITIONS = 10_000
FEW = 40
"""To begin with, so that what libraries load on demand is there."""


class Peak(NamedTuple):
    """Bytes: of the whole process, and of them what the work took."""

    whole: float
    grown: float


def rows(root: Path) -> list[Row]:
    """What each takes at its peak; the processes run at once, as none is timed."""
    started = {work: begun(root, work) for work in WORK}
    taken = {work: peak_of(process) for work, process in started.items()}
    each = {
        side: Measured(np.array([taken[f"transitions {side}"].grown / TRANSITIONS]))
        for side in ("before", "seed", "ours")
    }
    name = f"memory of {TRANSITIONS} transitions, {CHANNELS} channels, each; ours: of {stored()} bytes in tensors"
    plans = {side: Measured(np.array([taken[f"plan {side}"].whole])) for side in ("before", "ours")}
    return [
        Row(name, "KiB", each["ours"], each["before"], each["seed"], claims=("dynamics-memory",)),
        Row(
            f"memory of a process that plans, {2 * planning.SIDE**2} weights",
            "MB",
            plans["ours"],
            plans["before"],
        ),
    ]


def stored() -> int:
    """Bytes of a transition, by the shapes of a ring."""
    ring = windows.allocate(1, 2, CHANNELS, ACTION)
    parts = (*ring[:3], ring.starts.numbers)
    return sum(part.numel() * part.element_size() for part in parts) // 2


def begun(root: Path, work: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "benchmarks.active_dynamics.memory", work]
    return subprocess.Popen(
        command, cwd=root, env=os.environ | paths, stdout=subprocess.PIPE, text=True
    )


def peak_of(process: subprocess.Popen[str]) -> Peak:
    """Of a process of its own.

    Raises:
        RuntimeError: it failed.
    """
    told, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"memory: {process.args} ended with {process.returncode}")
    return Peak(*(2**20 * float(each) for each in told.split()))


# Each is made ready, and then it is what grows.


def plain_transitions(recent: Callable[[int], RecentRollout]) -> Callable[[], object]:
    """A dictionary each, with what they hold beside observations and actions; the latest are copied in each step."""
    kept_by(recent, FEW)
    return lambda: kept_by(recent, TRANSITIONS)


def kept_by(
    recent: Callable[[int], RecentRollout], transitions: int
) -> tuple[Rollout, RecentRollout]:
    generator, kept, latest = torch.Generator().manual_seed(0), Rollout(), recent(LENGTH)
    for _ in range(transitions):
        transition = transition_of(generator)
        kept.add(transition)
        latest.add(transition)
        latest.copy()
    return kept, latest


def own_transitions() -> Callable[[], object]:
    """In a ring that is as long as the run."""
    ring_of(FEW)
    return lambda: ring_of(TRANSITIONS)


def ring_of(transitions: int) -> windows.WindowRing:
    generator, ring = (
        torch.Generator().manual_seed(0),
        windows.allocate(1, transitions, CHANNELS, ACTION),
    )
    for _ in range(transitions):
        wrote(ring, transition_of(generator))
    return ring


def plain_plan() -> Callable[[], object]:
    """Candidate by candidate."""
    return planning.plain_plan(beliefs(), of_projection).run


def own_plan() -> Callable[[], object]:
    """All candidates at once, with all weights' parts in each other."""
    found = beliefs()
    return planning.own_plan(found, planning.looking_for(found.config, "fisher_a")).run


def beliefs() -> BayesFilterLearner:
    """Of many weights."""
    return beliefs_of(planning.sized(Path.cwd(), planning.MANY), 2)


WORK: dict[str, Callable[[], Callable[[], object]]] = {
    "transitions before": lambda: plain_transitions(RecentRollout),
    "transitions seed": lambda: plain_transitions(SeedRollout),
    "transitions ours": own_transitions,
    "plan before": plain_plan,
    "plan ours": own_plan,
}


def peak() -> float:
    """Megabytes; getrusage would begin with what the process that started this one has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    torch.set_num_threads(1)
    run = WORK[sys.argv[1]]()
    begin = peak()
    kept = run()
    print(peak(), peak() - begin)
    del kept


if __name__ == "__main__":
    main()
