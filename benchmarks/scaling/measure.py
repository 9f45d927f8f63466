"""small sweeps on 1, 2 and 3 nodes of this machine -> a table for 1 to 64 nodes (docs/cluster.md)

Nodes are clusters on 127.0.0.1 with one CPU each. More nodes than cores share them: what a row
of those says about real nodes is a lower bound.
"""

import argparse
import os
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import psutil

from benchmarks.scaling.model import DRAWS, Costs, Estimate, estimates, makespan
from pipeline.judging.render import markdown_table
from pipeline.reporting.result_files import write_lines
from pipeline.scaling import cluster
from pipeline.scaling.records import read_trials
from pipeline.storage.run_key import CHECKOUT
from quatrain.errors import DataError
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

RESULTS = Path("benchmarks/results/scaling.json")
PAGE = Path("docs/cluster.md")
BEGIN = "<!-- Made by `make bench-scaling`. -->"
END = "<!-- End of what `make bench-scaling` makes. -->"
NODES = (1, 2, 4, 8, 16, 32, 64)
TRIALS = 64
LONG_SECONDS = 300.0
HEAD = (
    "nodes",
    "these trials: time",
    "their speed-up",
    "their limit",
    "trials of 5 min: time",
    "speed-up of 5 min",
    "limit of 5 min",
)
TEXT = """\
Measured: {trials} trials of allo (preset smoke) on clusters of 127.0.0.1, one CPU a node, on a
machine with {cores} cores. More nodes than that share them; the model knows nothing of it, and
is too fast there. The load of the machine was {load:.1f} before: above 1, other work
slowed the trials, not equally in each sweep.

TABLE

The model takes from the sweep on one node: stages of {least:.1f} to {greatest:.1f} s a trial,
{overhead:.1f} s beside them on the node, {driver:.2f} s of the driver's processor a trial (one
after another), {ends:.0f} s before the first trial and after the last. Nodes are equal, with
one trial at a time on each; no ASHA; storage and network never limit. {all} trials with
durations drawn from the measured ones; beside it the same, stretched to a mean of {mean:.0f}
minutes. Medians of {draws} draws. **limit** is the greatest of: all work over the nodes, the
driver's part of all trials, the longest trial.
"""
SWEEP = """model: allo
preset: smoke
judge: cosine_mean
watch: cosine_mean
seeds: 1
trials: {trials}
seed: 0
search: random
schedule: {{kind: none}}
confirm: null
cpus: 1
gpus: 0
retries: 0
space:
  train.learning_rate: {{between: [1e-3, 2e-3], scale: log}}
"""


class Timeline(NamedTuple):
    """Holds what a sweep printed when, in seconds after its command, and what its trials took.

    whole: the whole command. driver: seconds of the driver's processor between its first trial's
    begin and its last one's end.
    """

    nodes: int
    begins: list[float]
    ends: list[float]
    seconds: list[float]
    whole: float
    driver: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scaling.measure", description=__doc__
    )
    parser.add_argument("--trials", type=int, default=12, help="of each sweep (default: 12)")
    parser.add_argument("--nodes", type=int, default=3, help="of the largest cluster (default: 3)")
    parser.add_argument("--page", action="store_true", help="measure nothing, write the table")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=PAGE)
    options = parser.parse_args(argv)
    if not options.page:
        cluster.check_installed()
        timelines, load = [], os.getloadavg()[0]
        for nodes in range(1, options.nodes + 1):
            timelines.append(run(nodes, options.trials))
            machine = {"cores": len(os.sched_getaffinity(0)), "load": load}
            content = {**machine, "sweeps": timelines}
            write_lines(options.results, content, depth=3)
    stored = folders.read_json(options.results)
    text = render([Timeline(**each) for each in stored["sweeps"]], stored)
    print(text)
    page = options.docs.read_text()
    parts = re.split(f"({re.escape(BEGIN)}|{re.escape(END)})", page)
    if parts[1::2] != [BEGIN, END]:
        raise DataError(f"{options.docs} needs the lines {BEGIN} and {END}, in this order")
    parts[2] = f"\n\n{text}\n\n"
    write_durably(options.docs, "".join(parts).encode())
    return 0


def run(nodes: int, trials: int) -> Timeline:
    """Runs a sweep in a folder of its own, on a cluster of its own."""
    print(f"scaling: {trials} trials on {nodes} nodes", file=sys.stderr, flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="quatrain-scaling-") as name,
        local_cluster(nodes) as at,
    ):
        folder = Path(name)
        for part in ("params.yaml", "dvc.yaml", "presets", "baselines", "inputs"):
            copy = shutil.copytree if (CHECKOUT / part).is_dir() else shutil.copy
            copy(CHECKOUT / part, folder / part)
        (folder / "sweeps").mkdir()
        # The start is a trial too.
        (folder / "sweeps" / "scaling.yaml").write_text(SWEEP.format(trials=trials - 1))
        options = ["sweeps/scaling.yaml", "--address", at, "--storage", str(folder / "storage")]
        command = [sys.executable, "-m", "pipeline", "sweep", *options]
        begins, ends, (whole, driver) = watch(command, folder)
        state = next((folder / ".state" / "sweeps").glob("scaling-*"))
        seconds = [trial.seconds for trial in read_trials(state / "trials")]
    return Timeline(nodes, begins, ends, seconds, whole, driver)


@contextmanager
def local_cluster(nodes: int) -> Iterator[str]:
    """Yields the address of a cluster on 127.0.0.1 with one CPU a node."""
    os.environ |= cluster.QUIET | cluster.LOOPBACK
    # One for all clusters: Ray reads it once in a process.
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    from ray.cluster_utils import Cluster

    started = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(nodes - 1):
            started.add_node(num_cpus=1)
        yield started.address
    finally:
        started.shutdown()


def watch(command: list[str], folder: Path) -> tuple[list[float], list[float], Any]:
    """Returns when trials began and ended, the time of the command, and its processor's time."""
    variables = {"PYTHONPATH": f"{CHECKOUT / 'src'}:{CHECKOUT}", "PYTHONUNBUFFERED": "1"}
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=os.environ | variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    watched = psutil.Process(process.pid)
    begins, ends, used, last = [], [], [], []
    assert process.stderr is not None
    for line in process.stderr:
        last = [*last[-5:], line]
        for pattern, times in ((r"trial \d+ begins", begins), (r"trial \d+ finished", ends)):
            if re.search(pattern, line):
                times.append(time.monotonic() - started)
                used.append(sum(watched.cpu_times()[:2]))
    if process.wait():
        raise DataError(f"the sweep ended with {process.returncode}: {''.join(last)}")
    return begins, ends, (time.monotonic() - started, used[-1] - used[0])


def costs_of(alone: Timeline) -> Costs:
    """Returns what the model needs, from the sweep on one node."""
    trials = len(alone.seconds)
    gaps = [begin - end for begin, end in zip(alone.begins[1:], alone.ends, strict=False)]
    spans = [end - begin for begin, end in zip(alone.begins, alone.ends, strict=True)]
    driver = alone.driver / trials
    # What a trial holds its node beside its stages, less the part that is counted as the driver's.
    beside = mean(spans) - mean(alone.seconds) + mean(gaps)
    ends = alone.begins[0] + alone.whole - alone.ends[-1]
    return Costs(alone.seconds, max(0.0, beside - driver), driver, ends)


def render(timelines: list[Timeline], machine: Mapping[str, Any]) -> str:
    """Returns the assumptions, the measured sweeps beside the model, and the table."""
    costs = costs_of(timelines[0])
    trials = len(costs.seconds)
    measured = []
    for each in timelines:
        model = makespan(costs.seconds, costs, each.nodes)
        numbers = [f"{each.whole:.0f} s", f"{model:.0f} s", f"{mean(each.seconds):.1f} s"]
        measured.append([str(each.nodes), *numbers])
    short, long = (estimates(costs, TRIALS, NODES, each) for each in (None, LONG_SECONDS))
    rows = [[str(a.nodes), *cells(a), *cells(b)] for a, b in zip(short, long, strict=True)]
    numbers = {
        "trials": trials,
        "cores": machine["cores"],
        "load": machine["load"],
        "least": min(costs.seconds),
    }
    numbers |= {"greatest": max(costs.seconds), "mean": LONG_SECONDS / 60, "all": TRIALS}
    text = TEXT.format(**numbers, **costs._asdict(), draws=DRAWS)
    above, below = text.split("TABLE\n")
    columns = ("nodes", "measured", "model", "stages of a trial")
    return "\n".join([above, markdown_table(columns, measured), below, markdown_table(HEAD, rows)])


def cells(estimate: Estimate) -> list[str]:
    minutes = estimate.seconds / 60
    return [f"{minutes:.1f} min", f"{estimate.speed_up:.1f}x", estimate.limit]


if __name__ == "__main__":
    sys.exit(main())
