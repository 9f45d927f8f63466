"""memory of transitions and of a plan, original and ours -> rows; each in its own process"""

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
"""Transitions of a first run, which makes libraries load what they load on demand."""


class Peak(NamedTuple):
    """Holds bytes: of the whole process, and the growth during the work."""

    whole: float
    grown: float


def rows(root: Path) -> list[Row]:
    """Returns the rows of peak memory. The processes run in parallel, as none is timed."""
    started = {work: start_process(root, work) for work in WORK}
    peaks = {work: peak_of(process) for work, process in started.items()}
    each = {
        side: Measured(np.array([peaks[f"transitions {side}"].grown / TRANSITIONS]))
        for side in ("before", "seed", "ours")
    }
    name = (
        f"memory of {TRANSITIONS} transitions, {CHANNELS} channels, each;"
        f" ours: of {stored()} bytes in tensors"
    )
    plans = {side: Measured(np.array([peaks[f"plan {side}"].whole])) for side in ("before", "ours")}
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
    """Returns the bytes of a transition, from the shapes of a ring."""
    ring = windows.allocate(1, 2, CHANNELS, ACTION)
    parts = (*ring[:3], ring.starts.numbers)
    return sum(part.numel() * part.element_size() for part in parts) // 2


def start_process(root: Path, work: str) -> subprocess.Popen[str]:
    paths = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "benchmarks.active_dynamics.memory", work]
    return subprocess.Popen(
        command, cwd=root, env=os.environ | paths, stdout=subprocess.PIPE, text=True
    )


def peak_of(process: subprocess.Popen[str]) -> Peak:
    """Waits for a process and returns its peak.

    Raises:
        RuntimeError: it failed.
    """
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"memory: {process.args} ended with {process.returncode}")
    return Peak(*(2**20 * float(each) for each in output.split()))


# Each function prepares the work and returns it; the work's growth is measured.


def plain_transitions(recent: Callable[[int], RecentRollout]) -> Callable[[], object]:
    """Stores a dictionary per transition; copies the latest transitions in each step."""
    kept_by(recent, FEW)
    return lambda: kept_by(recent, TRANSITIONS)


def kept_by(
    recent: Callable[[int], RecentRollout], transitions: int
) -> tuple[Rollout, RecentRollout]:
    generator, retained, latest = torch.Generator().manual_seed(0), Rollout(), recent(LENGTH)
    for _ in range(transitions):
        transition = transition_of(generator)
        retained.add(transition)
        latest.add(transition)
        latest.copy()
    return retained, latest


def own_transitions() -> Callable[[], object]:
    """Stores transitions in a ring as long as the run."""
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
    """Plans one candidate after another."""
    return planning.plain_plan(beliefs(), of_projection).run


def own_plan() -> Callable[[], object]:
    """Plans with all candidates at once and the joint covariance of the weights."""
    learner = beliefs()
    return planning.own_plan(learner, planning.looking_for(learner.config, "fisher_a")).run


def beliefs() -> BayesFilterLearner:
    """Returns beliefs with many weights."""
    return beliefs_of(planning.sized(Path.cwd(), planning.MANY), 2)


WORK: dict[str, Callable[[], Callable[[], object]]] = {
    "transitions before": lambda: plain_transitions(RecentRollout),
    "transitions seed": lambda: plain_transitions(SeedRollout),
    "transitions ours": own_transitions,
    "plan before": plain_plan,
    "plan ours": own_plan,
}


def peak() -> float:
    """Returns the peak in MB; getrusage would include the memory of the parent process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def main() -> None:
    torch.set_num_threads(1)
    run = WORK[sys.argv[1]]()
    begin = peak()
    retained = run()
    print(peak(), peak() - begin)
    del retained


if __name__ == "__main__":
    main()
