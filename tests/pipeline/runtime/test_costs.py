"""What a stage takes is added up over its attempts; energy where the machine lets it be read."""

import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from pipeline.runtime import costs
from pipeline.runtime.costs import Meter, stored
from tests.pipeline.fixture_types import Patch


@pytest.fixture
def clock(monkeypatch: Patch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_attempts_add_up_until_the_stage_is_done_and_a_stopped_meter_stays(
    tmp_path: Path, clock: list[float]
):
    path = tmp_path / "costs" / "train@allo.json"
    for seconds, ends, total in ((2.0, False, 2.0), (3.0, True, 5.0), (4.0, True, 4.0)):
        meter = Meter(path)
        clock[0] += seconds
        assert meter.stop()["seconds"] == total
        clock[0] += 10.0
        meter.save(ends)
        assert stored(path)["costs"]["seconds"] == total


def test_a_device_that_is_not_there_is_no_failure_of_measuring(monkeypatch: Patch):
    missing = Mock(local_devices=Mock(side_effect=AssertionError))
    monkeypatch.setitem(sys.modules, "jax", missing)
    assert Meter().stop()["seconds"] >= 0


def test_memory_is_the_largest_and_other_costs_are_sums():
    meter = Meter()
    for value in (3e6, 2e6):
        meter.add("memory_megabytes", value)
        meter.add("compile_seconds", value)
    assert meter.totals()["memory_megabytes"] == 3e6
    assert meter.totals()["compile_seconds"] == 5e6


def test_energy_is_that_of_processors_whose_counters_may_begin_again(
    tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setattr(costs, "POWERCAP", tmp_path)
    assert "energy_joules" not in Meter().totals()

    def count(domain: str, name: str, value: int) -> None:
        (tmp_path / domain).mkdir(exist_ok=True)
        texts = {"name": name, "energy_uj": f"{value}", "max_energy_range_uj": "10000000"}
        for file, text in texts.items():
            (tmp_path / domain / file).write_text(f"{text}\n")

    count("intel-rapl:0", "package-0", 9_000_000)
    count("intel-rapl:1", "package-1", 0)
    count("intel-rapl:2", "psys", 0)
    meter = Meter()
    count("intel-rapl:0", "package-0", 1_000_000)
    count("intel-rapl:1", "package-1", 500_000)
    count("intel-rapl:2", "psys", 7_000_000)
    assert meter.totals()["energy_joules"] == pytest.approx(2.5)
