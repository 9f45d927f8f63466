"""a model -> a trace of some yields of its training, and the operations that take most time."""

import gzip
import json
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging.render import markdown_table
from pipeline.runtime.stage import Stage, prepare_process
from pipeline.storage.params_file import read_params
from quatrain.devices import on_device
from quatrain.errors import DataError

OUT = Path(".bench/profile")
# Yields before the trace: the first compiles, and what follows the first settles.
WARM = 2
SHOWN = 25


class Spent(NamedTuple):
    """Holds an operation of a trace: calls, and milliseconds without nested operations."""

    name: str
    calls: int
    milliseconds: float


def profile(root: Path, model: str, seconds: float) -> None:
    """Traces the training of a model for so many seconds, and prints where they went."""
    stage = Stage("train", model, root, read_params(root))
    prepare_process(stage.params)
    with on_device(stage.params, stage.framework):
        file = trace(stage, OUT / stage.model, seconds)
    print(table(self_times(operations(file))))
    print(f"\n{file}: open it at https://ui.perfetto.dev or in chrome://tracing; it is not sent")


def trace(stage: Stage, folder: Path, seconds: float) -> Path:
    """Trains without a trace until all is compiled, then with one; returns the file of events. The
    dataset is the collected one, or else collected here.
    """
    model = stage.modules
    try:
        dataset = stage.load_dataset()[0]
    except DataError:
        dataset = model.collect.collect(stage.config, stage.seed("collect"))
    progress = model.train.train(stage.config, dataset, stage.seed("train"))
    for _ in range(WARM):
        next(progress)
    yields, begin = 0, time.perf_counter()
    with tracing(stage, folder):
        for _ in progress:
            yields += 1
            if time.perf_counter() - begin >= seconds:
                break
        used = time.perf_counter() - begin
    print(f"{yields} yields in {used:.1f} s (slower than without a trace)\n")
    return max(folder.rglob("*.trace.json*"), key=lambda file: file.stat().st_mtime)


def tracing(stage: Stage, folder: Path) -> Any:
    """Returns a context that writes the events of what runs inside into a folder."""
    if stage.framework == "jax":
        import jax

        options = jax.profiler.ProfileOptions()
        options.python_tracer_level = 0  # every call of Python would be an event
        return jax.profiler.trace(folder, profiler_options=options)
    import torch

    write = torch.profiler.tensorboard_trace_handler(str(folder))
    return torch.profiler.profile(on_trace_ready=write)


def operations(file: Path) -> list[dict[str, Any]]:
    """Returns the events that are operations: of XLA programs or torch, on CPU or a device."""

    def is_operation(event: dict[str, Any]) -> bool:
        of_xla = "hlo_op" in event.get("args", {}) and not event["name"].startswith("end: ")
        return of_xla or event.get("cat") in ("cpu_op", "kernel", "gpu_memcpy", "gpu_memset")

    read = gzip.open if file.suffix == ".gz" else open
    with read(file, "rt") as opened:
        events = json.load(opened)["traceEvents"]
    return [item for item in events if item.get("ph") == "X" and is_operation(item)]


def self_times(events: Iterable[dict[str, Any]]) -> list[Spent]:
    """Returns operations by self time, longest first; nested operations of a thread are counted
    once.
    """
    calls: dict[str, int] = defaultdict(int)
    microseconds: dict[str, float] = defaultdict(float)
    around: dict[Any, list[tuple[float, str]]] = defaultdict(list)
    for event in sorted(events, key=lambda item: (item["ts"], -item["dur"])):
        name, stack = event["name"], around[event["pid"], event["tid"]]
        while stack and stack[-1][0] <= event["ts"]:
            stack.pop()
        if stack:
            microseconds[stack[-1][1]] -= event["dur"]
        calls[name] += 1
        microseconds[name] += event["dur"]
        stack.append((event["ts"] + event["dur"], name))
    spent = [Spent(name, calls[name], microseconds[name] / 1e3) for name in calls]
    return sorted(spent, key=lambda item: -item.milliseconds)


def table(spent: list[Spent]) -> str:
    """Renders the longest operations; the share is of the time of all operations."""
    whole = sum(item.milliseconds for item in spent) or 1.0
    lines = [
        [name[:60], f"{calls:,}", f"{milliseconds:.2f}", f"{milliseconds / whole:.1%}"]
        for name, calls, milliseconds in spent[:SHOWN]
    ]
    return markdown_table(("operation", "calls", "self ms", "share"), lines)
