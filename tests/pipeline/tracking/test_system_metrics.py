"""Tests the metrics of the machine."""

import itertools
import sys

from pipeline.tracking import system_metrics
from pipeline.tracking.system_metrics import SystemMetrics
from tests.pipeline.fixture_types import Patch


def test_a_sample_is_taken_when_it_is_due_and_counted(monkeypatch: Patch):
    clock = itertools.count(0.0, 2.0)
    monkeypatch.setattr(system_metrics.time, "monotonic", lambda: next(clock))
    busy = SystemMetrics(cuda=False)
    samples = [list(busy.rows()) for _ in range(7)]  # at 2, 4, ... 14 seconds; one in five is due
    steps = [{step for _, step, _ in rows} for rows in samples]
    assert steps == [{1}, set(), set(), {2}, set(), set(), {3}]
    assert {step for _, step, _ in SystemMetrics(cuda=False, samples=4).rows()} == {5}  # resumed


def test_names_are_those_that_the_ui_groups_and_values_are_plausible():
    rows = {name: value for name, _, value in SystemMetrics(cuda=False).rows()}
    assert rows.keys() == {
        "system/cpu_utilization_percentage",
        "system/system_memory_usage_megabytes",
        "system/system_memory_usage_percentage",
        "system/process_memory_megabytes",
    }
    assert 0 <= rows["system/cpu_utilization_percentage"] <= 100
    process = rows["system/process_memory_megabytes"]
    assert 0 < process < rows["system/system_memory_usage_megabytes"]


def test_a_gpu_without_monitor_is_ignored(monkeypatch: Patch):
    monkeypatch.setitem(sys.modules, "mlflow.system_metrics.metrics.gpu_monitor", None)
    rows = SystemMetrics(cuda=True).rows()
    assert not [name for name, _, _ in rows if name.startswith("system/gpu")]
