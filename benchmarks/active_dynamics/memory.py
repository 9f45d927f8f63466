"""memory of transitions and of a plan, as the original has them and as the project does; by processes of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.active_dynamics import planning
from benchmarks.active_dynamics.parts import ACTION, CHANNELS, transition_of, wrote
from benchmarks.active_dynamics.sides import beliefs_of
from benchmarks.reference.active_dynamics_planner import of_projection
from benchmarks.reference.active_dynamics_rollout import Rollout
from quatrain.models.active_dynamics.agents.filter.rows import FilterRows
from quatrain.replay import windows

TRANSITIONS = 10_000
FEW = 40
"""To begin with, so that what libraries load on demand is there."""


class Peak(NamedTuple):
    """Megabytes: of the whole process, and of them what the work took."""

    whole: float
    grown: float


def notes(root: Path) -> list[str]:
    """What each takes at its peak."""
    taken = {work: measured(root, work) for work in WORK}
    each = {side: 2**20 * taken[f"transitions {side}"].grown / TRANSITIONS for side in ("before", "ours")}
    plans = {side: taken[f"plan {side}"] for side in ("before", "ours")}
    return [
        f"memory of {TRANSITIONS} transitions of {CHANNELS} channels (the seed claims 0.6-0.8x): a dictionary each "
        f"{each['before']:.0f} bytes a transition, ours {each['ours']:.0f} (its tensors: {stored()})",
        f"memory of a plan of {2 * planning.SIDE**2} weights at its peak: before {plans['before'].whole:.0f} MB, of "
        f"them {plans['before'].grown:.0f} MB beyond libraries and belief; ours {plans['ours'].whole:.0f} MB, "
        f"{plans['ours'].grown:.0f} MB",
    ]


def stored() -> int:
    """Bytes of a transition, by the shapes of a ring."""
    ring = windows.allocate(1, 2, CHANNELS, ACTION)
    parts = (*ring[:3], ring.starts.numbers)
    return sum(part.numel() * part.element_size() for part in parts) // 2


def measured(root: Path, work: str) -> Peak:
    """Of a process of its own."""
    paths = {"PYTHONPATH": f"{root / 'src'}:{root}"}
    command = [sys.executable, "-m", "benchmarks.active_dynamics.memory", work]
    ran = subprocess.run(command, cwd=root, env=os.environ | paths, capture_output=True, text=True, check=True)
    return Peak(*map(float, ran.stdout.split()))


# Each is made ready, and then it is what grows.


def plain_transitions() -> Callable[[], object]:
    """A dictionary each, with what they hold beside observations and actions."""
    kept_by(FEW)
    return lambda: kept_by(TRANSITIONS)


def kept_by(transitions: int) -> Rollout:
    generator, kept = torch.Generator().manual_seed(0), Rollout()
    for _ in range(transitions):
        kept.add(transition_of(generator))
    return kept


def own_transitions() -> Callable[[], object]:
    """In a ring that is as long as the run."""
    ring_of(FEW)
    return lambda: ring_of(TRANSITIONS)


def ring_of(transitions: int) -> windows.Ring:
    generator, ring = torch.Generator().manual_seed(0), windows.allocate(1, transitions, CHANNELS, ACTION)
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


def beliefs() -> FilterRows:
    """Of many weights."""
    return beliefs_of(planning.sized(Path.cwd(), planning.MANY), 2)


WORK = {
    "transitions before": plain_transitions,
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
