"""Progress is a bar on a terminal and some plain lines elsewhere; the machine has metrics."""

import itertools
import sys

import numpy as np

from pipeline.tracking import monitoring
from pipeline.tracking.monitoring import ProgressBar, SystemMetrics
from quatrain.progress import Progress
from tests.pipeline.fixture_types import Capture, Patch


def test_a_file_gets_a_plain_line_at_each_quarter(capsys: Capture):
    show(ProgressBar("train@allo", 240, 60, ("loss",)))
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "train@allo: continues at step 60 of 240"
    assert [line.split()[1] for line in lines[1:]] == ["120/240", "180/240"]


def test_a_terminal_of_the_parent_gets_a_bar(capsys: Capture, monkeypatch: Patch):
    monkeypatch.setenv("QUATRAIN_COLUMNS", "60")
    show(ProgressBar("train@allo", 240, 0, ("loss",)))
    states = capsys.readouterr().err.split("\r")
    assert any(state.startswith("train@allo: ") and len(state) == 60 for state in states)
    assert "\n" not in "".join(states)


def test_rate_and_times_leave_out_compilation(capsys: Capture, monkeypatch: Patch):
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    monkeypatch.setattr("tqdm.std.time", lambda: clock[0])
    with ProgressBar("train@allo", 2000, 0, ("loss",)) as bar:
        for step, now in ((500, 6.0), (1000, 7.0), (2000, 9.0)):
            clock[0] = now
            bar.show(Progress(step, None, {"loss": np.array([0.25])}))
    assert capsys.readouterr().err.splitlines() == [
        "train@allo: 500/2,000  ? steps/s  ? left, loss=0.25",
        "train@allo: 1,000/2,000  500.00 steps/s  00:02 left, loss=0.25",
    ]
    assert bar.times() == (5, 500)


def show(bar: ProgressBar) -> None:
    with bar:
        for step in range(bar.start + 2, 241, 2):
            bar.show(Progress(step, None, {"loss": np.array([0.25])}))


def test_a_sample_is_taken_when_it_is_due_and_counted(monkeypatch: Patch):
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(monitoring.time, "monotonic", lambda: next(clock))
    busy = SystemMetrics(cuda=False)
    samples = [list(busy.rows()) for _ in range(7)]  # at 2, 4, ... 14 seconds; one in five is due
    steps = [{step for _, step, _ in rows} for rows in samples]
    assert steps == [{1}, set(), set(), {2}, set(), set(), {3}]
    assert {step for _, step, _ in SystemMetrics(cuda=False, samples=4).rows()} == {5}  # resumed


def test_names_are_those_that_the_ui_groups_and_values_are_plausible():
    rows = {name: value for name, _, value in SystemMetrics(cuda=False).rows()}
    assert all(name.startswith("system/") for name in rows)
    assert 0 <= rows["system/cpu_utilization_percentage"] <= 100
    process = rows["system/process_memory_megabytes"]
    assert 0 < process < rows["system/system_memory_usage_megabytes"]


def test_a_gpu_without_monitor_is_ignored(monkeypatch: Patch):
    monkeypatch.setitem(sys.modules, "mlflow.system_metrics.metrics.gpu_monitor", None)
    rows = SystemMetrics(cuda=True).rows()
    assert not [name for name, _, _ in rows if name.startswith("system/gpu")]
