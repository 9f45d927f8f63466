"""a model -> a trace of some yields of its training, and the operations that take most time"""

import argparse
import contextlib
import gzip
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.runtime.devices import on_device
from pipeline.runtime.errors import ArtifactError, ConfigError
from pipeline.runtime.stage import Stage, prepare_process
from pipeline.storage.params_file import read_params
from quatrain.errors import DataError
from quatrain.registry import MODELS, Framework, load

OUT = Path(".bench/profile")
SECONDS = 3.0
WARM = 2
"""Yields before the trace: the first compiles, and what follows the first settles."""
SHOWN = 25
CHROME = "trace.json"
"""What torch writes; jax names its own files."""


class Spent(NamedTuple):
    """Holds an operation of a trace: calls, and milliseconds without nested operations."""

    name: str
    calls: int
    milliseconds: float


class Traced(NamedTuple):
    """Holds a trace: its yields, their seconds, and the file of events."""

    yields: int
    seconds: float
    file: Path


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__)
    parser.add_argument(
        "model", metavar="MODEL", help=f"one of {', '.join(MODELS)}, as params.yaml has it"
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, help="folder for the traces (default: %(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="how long to trace; at least one yield (3)"
    )
    selected = parser.parse_args(argv)
    if selected.model not in MODELS:
        return refused(f"{selected.model}: there is no such model; there are {', '.join(MODELS)}")
    try:
        stage = Stage("train", selected.model, Path.cwd(), read_params(Path.cwd()))
    except ConfigError as error:
        return refused(str(error))
    prepare_process(stage.params)
    with on_device(stage.params, stage.framework):
        traced = trace(stage, selected.out / stage.model, selected.seconds)
    spent = self_times(operations(traced.file))
    print(table(spent), "", *where(stage.framework, traced), sep="\n")
    return 0


def refused(why: str) -> int:
    print(f"profile: {why} [exit 2]", file=sys.stderr)
    return 2


def trace(stage: Stage, folder: Path, seconds: float) -> Traced:
    """Trains without a trace until all is compiled, then with one."""
    progress = load(stage.model).train.train(stage.config, dataset_of(stage), stage.seed("train"))
    for _ in range(WARM):
        next(progress)
    yields, begin = 0, time.perf_counter()
    with TRACING[stage.framework](folder) as files:
        while not yields or time.perf_counter() - begin < seconds:
            if next(progress, None) is None:
                break
            yields += 1
        used = time.perf_counter() - begin
    return Traced(yields, used, files[-1])


def dataset_of(stage: Stage) -> Any:
    """Loads the collected dataset, or collects one if there is none of this config."""
    try:
        return stage.load_dataset()[0]
    except (ArtifactError, DataError):
        return load(stage.model).collect.collect(stage.config, stage.seed("collect"))


@contextlib.contextmanager
def _jax_tracing(folder: Path) -> Iterator[list[Path]]:
    """Yields a list that holds the file of events afterwards."""
    import jax

    options, files = jax.profiler.ProfileOptions(), []
    options.python_tracer_level = 0  # every call of Python would be an event
    jax.profiler.start_trace(folder, profiler_options=options)
    try:
        yield files
    finally:
        jax.profiler.stop_trace()
    files += sorted(folder.rglob("*.trace.json.gz"), key=lambda file: file.stat().st_mtime)


@contextlib.contextmanager
def _torch_tracing(folder: Path) -> Iterator[list[Path]]:
    """Yields a list that holds the file of events afterwards."""
    import torch

    files: list[Path] = []
    with torch.profiler.profile() as profiler:
        yield files
    folder.mkdir(parents=True, exist_ok=True)
    profiler.export_chrome_trace(str(folder / CHROME))
    files.append(folder / CHROME)


TRACING = {"jax": _jax_tracing, "torch": _torch_tracing}


def operations(file: Path) -> list[dict[str, Any]]:
    """Returns the events of a trace that are operations: of XLA programs or torch, on CPU or a
    device.
    """
    read = gzip.open if file.suffix == ".gz" else open
    with read(file, "rt") as opened:
        events = json.load(opened)["traceEvents"]
    return [item for item in events if item.get("ph") == "X" and _is_operation(item)]


def _is_operation(event: dict[str, Any]) -> bool:
    of_xla = "hlo_op" in event.get("args", {}) and not event["name"].startswith("end: ")
    return of_xla or event.get("cat") in ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset")


def self_times(events: Iterable[dict[str, Any]]) -> list[Spent]:
    """Returns operations by self time, longest first; nested operations of a thread are counted
    once.
    """
    threads: dict[tuple[Any, Any], list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        threads[event["pid"], event["tid"]].append(event)
    calls: dict[str, int] = defaultdict(int)
    microseconds: dict[str, float] = defaultdict(float)
    for of_thread in threads.values():
        around: list[tuple[float, str]] = []
        for event in sorted(of_thread, key=lambda item: (item["ts"], -item["dur"])):
            while around and around[-1][0] <= event["ts"]:
                around.pop()
            if around:
                microseconds[around[-1][1]] -= event["dur"]
            calls[event["name"]] += 1
            microseconds[event["name"]] += event["dur"]
            around.append((event["ts"] + event["dur"], event["name"]))
    spent = [Spent(name, calls[name], microseconds[name] / 1e3) for name in calls]
    return sorted(spent, key=lambda item: -item.milliseconds)


def table(spent: list[Spent]) -> str:
    """Renders the longest operations as text; the share is of the time of all operations."""
    whole = sum(item.milliseconds for item in spent) or 1.0
    width = max([len(item.name[:60]) for item in spent[:SHOWN]], default=9)
    lines = [f"{'operation':{width}}  {'calls':>8}  {'self ms':>10}  {'share':>6}"]
    for name, calls, milliseconds in spent[:SHOWN]:
        lines.append(
            f"{name[:60]:{width}}  {calls:8,}  {milliseconds:10.2f}  {milliseconds / whole:6.1%}"
        )
    return "\n".join(lines)


def where(framework: Framework, traced: Traced) -> list[str]:
    """Returns lines on what was traced and how to see more of it."""
    lines = [
        f"{traced.yields} yields in {traced.seconds:.1f} s (slower than without a trace):"
        f" {traced.file}"
    ]
    lines.append(
        "open it at https://ui.perfetto.dev or in chrome://tracing; it is not sent anywhere"
    )
    if framework == "jax":
        lines.append(
            "names are those of XLA's fused operations; in the .xplane.pb beside it TensorBoard"
            " finds more"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
