"""Tests that an outbox holds every record exactly, whenever a process dies or the disk is full."""

import itertools
import math
import random
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Parent, curve_rows, drawn_as
from pipeline.tracking.run import end_abandoned, writer_lock
from quatrain.errors import DataError
from quatrain.storage import history
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header

ODD = [0.1, 5e-324, math.nan, math.inf, -math.inf, -0.0, 3.0]


def begun(tmp_path: Path, name: str = "train@allo-1", **changes: Any) -> Outbox:
    outbox = Outbox(tmp_path / f"{name}.sqlite")
    outbox.begin(header("k1", **changes))
    return outbox


def all_sent(outbox: Outbox) -> None:
    while (record := outbox.next_record()) is not None:
        outbox.mark_sent(record)


def test_the_next_process_reads_back_every_record_bit_for_bit(tmp_path: Path):
    outbox = begun(tmp_path, params={"steps": "3"}, parent=Parent("p1", "default"))
    outbox.metrics([("loss", step, value) for step, value in enumerate(ODD)])
    outbox.metrics([("entropy", 2, 1 / 3)])
    outbox.end("FINISHED")
    again = Outbox(outbox.path)
    assert again.header == header("k1", params={"steps": "3"}, parent=Parent("p1", "default"))
    assert [repr(value) for _, value in again.history()["loss"]] == list(map(repr, ODD))
    assert again.history("ent") == {"ropy": [(2, 1 / 3)]}
    assert (again.last_step("loss"), again.last_step("none")) == (6, 0)


def test_history_csv_is_a_query_and_what_is_not_drawn_is_never_sent(tmp_path: Path):
    outbox = begun(tmp_path)
    rows = [("train/b", 2, -0.0), ("range/b_low", 2, 9.0), ("train/a", 1, 1 / 3)]
    outbox.metrics(rows, hidden={"train/b"})
    csv = "step,b,a\n1,,0.3333333333333333\n2,-0.0,\n"
    assert history.to_csv(outbox.history("train/")) == csv
    for _ in range(2):
        points = outbox.next_points(9)
        assert [point.name for point in points] == ["range/b_low", "train/a"]
        outbox.mark_sent(points[-1])
        assert outbox.last_sent() == {"range/b_low": 2, "train/a": 1}
        outbox.set_destination("sqlite:///elsewhere.db", "r1")


def test_a_repeated_step_keeps_its_first_time_and_value(tmp_path: Path, monkeypatch: Patch):
    seconds = itertools.count(10**18, 10**9)
    monkeypatch.setattr("time.time_ns", lambda: next(seconds))
    outbox = begun(tmp_path)
    outbox.metrics([("loss", 1, 0.5), ("loss", 2, 0.25), ("loss", 2, 99.0)])
    first = outbox.points()
    Outbox(outbox.path).metrics([("loss", 1, 7.0), ("loss", 3, 0.125)])
    *same, new = outbox.points()
    assert same == first
    assert (new.step, new.value) == (3, 0.125)
    assert new.time > first[0].time


def test_what_is_unchanged_is_not_sent_again_and_what_changes_while_it_is_sent_is(tmp_path: Path):
    outbox = begun(tmp_path)
    all_sent(outbox)
    for _ in range(2):
        outbox.put("artifact", "plots/a.png", data=b"one")
        outbox.put("tag", "note", "one")
    sending = outbox.next_record()
    assert sending is not None
    outbox.put("artifact", "plots/a.png", data=b"two")
    outbox.mark_sent(sending)
    assert [record.data for record in outbox.records("artifact") if not record.sent] == [b"two"]
    all_sent(outbox)
    outbox.put("tag", "note", "one")
    assert outbox.next_record() is None


def test_a_resumed_run_is_open_again_under_its_first_header(tmp_path: Path):
    outbox = begun(tmp_path)
    outbox.end("KILLED")
    all_sent(outbox)
    outbox.begin(header("k1", run_name="another"))
    assert outbox.header == header("k1")._replace(params=outbox.header.params)
    assert outbox.record("end") is None
    first = outbox.next_record()
    assert first is not None
    assert first.kind == "begin"


def test_params_are_recorded_as_they_are_and_a_long_one_by_its_digest(
    tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setenv("API_PASSWORD", "default_law")
    params = {"plates": "default_law", "uri": "http://u:word@host"}
    stored = begun(tmp_path, params=params | {"long": "default_law" * 600}).header
    assert stored is not None
    assert stored.params["long"].startswith("6600 characters, sha256 ")
    assert stored.params == params | {"long": stored.params["long"]}


@pytest.mark.parametrize("name", ["../loss", "a//b", "/a", "", "x" * 251, "a?b", ".", "a/"])
def test_a_name_that_mlflow_refuses_is_refused_at_once(tmp_path: Path, name: str):
    message = "name .*: use up to 250 letters, digits, spaces"
    outbox = begun(tmp_path)
    with pytest.raises(ValueError, match=f"metric {message}"):
        outbox.metrics([("loss", 1, 0.5), (name, 1, 0.5)])
    with pytest.raises(ValueError, match=f"param {message}"):
        begun(tmp_path, "other", params={name: "x"})
    assert outbox.points() == []


WRITER = """
import sys
from pathlib import Path
from tests.pipeline.recorded_runs import header
from pipeline.tracking.outbox import Outbox
outbox = Outbox(Path(sys.argv[1]))
outbox.begin(header("k1"))
for step in range(outbox.last_step("train/"), 10**6):
    outbox.metrics([(f"train/{name}", step, step / 7) for name in range(40)])
    outbox.put("artifact", "plots/a.png", data=bytes(20_000 + step))
    print(step, flush=True)
"""


def test_what_was_acknowledged_outlives_kill_9_at_any_moment(tmp_path: Path):
    path = tmp_path / ".state" / "outbox" / "train@allo-1.sqlite"
    dice = random.Random(0)
    for _ in range(2):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            lines = [writer.stdout.readline() for _ in range(dice.randrange(1, 12))]
            time.sleep(dice.random() / 50)
            writer.kill()
            lines += writer.stdout.readlines()
        acknowledged = max(int(line) for line in lines if line.endswith("\n"))
        outbox = Outbox(path)
        first, *others = outbox.history("train/").values()
        assert others == [first] * 39, "a batch is there or it is not"
        assert first == [(step, step / 7) for step in range(len(first))]
        assert len(first) > acknowledged
        (file,) = outbox.records("artifact")
        assert len(file.data or b"") >= 20_000 + acknowledged


@pytest.mark.parametrize(
    ("pragma", "says"),
    [("max_page_count = 20", "No space left on device"), ("query_only = 1", "Permission denied")],
)
def test_a_disk_that_takes_nothing_leaves_the_outbox_as_it_was(
    tmp_path: Path, pragma: str, says: str
):
    outbox = begun(tmp_path)
    outbox.metrics([("loss", 1, 0.5)])
    connect = sqlite3.connect

    def limited(*arguments: Any, **named: Any) -> sqlite3.Connection:
        database = connect(*arguments, **named)
        database.execute(f"PRAGMA {pragma}")
        return database

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sqlite3.connect", limited)
        with pytest.raises(OSError, match=says) as failure:
            outbox.put("artifact", "plots/a.png", data=bytes(200_000))
        assert failure.value.filename == str(outbox.path)
        assert outbox.history() == {"loss": [(1, 0.5)]}
    outbox.put("artifact", "plots/a.png", data=bytes(200_000))
    assert outbox.pending() == (1, 1)


@pytest.mark.parametrize("damage", ["garbage", "cut", "header"])
def test_a_damaged_outbox_is_named_with_a_remedy(tmp_path: Path, damage: str):
    outbox = begun(tmp_path)
    outbox.metrics([("loss", step, 0.5) for step in range(2000)])
    content = outbox.path.read_bytes()
    if damage == "header":
        with sqlite3.connect(outbox.path) as database:
            database.execute("UPDATE records SET body = '{' WHERE kind = 'begin'")
        database.close()
    else:
        outbox.path.write_bytes(b"no database" * 999 if damage == "garbage" else content[:9000])
    with pytest.raises(DataError, match=r"train@allo-1\.sqlite is damaged \(.*\); move it elsewhe"):
        outbox.history() and outbox.header


def test_a_later_run_of_a_stage_ends_those_whose_process_was_killed(tmp_path: Path):
    killed, ended, working, other = (
        begun(tmp_path, name)
        for name in ("train@allo-1", "train@allo-2", "train@allo-3", "train@iqn-1")
    )
    killed.metrics([("loss", 1, 0.5)], time=killed.last_time + 5000)
    ended.end("FINISHED")
    (tmp_path / "train@allo-4.sqlite").write_bytes(b"no database" * 999)
    with writer_lock(working.path):
        paths = tmp_path.glob("train@allo-*.sqlite")
        assert [each.name for each in end_abandoned(paths)] == [killed.name]
    end = killed.record("end")
    assert end is not None
    assert (end.body, end.time) == ("KILLED", killed.points()[0].time)
    assert [each.record("end") for each in (working, other)] == [None, None]


# Which metrics are charts in MLflow, and under which names.

ARMS = "error error.active error.random monitor/other loss"
TABLE = [
    # first headline metric, metrics, charts
    ("return", "loss loss/seed/0 reason/timeout", "loss"),
    (
        "cosine_mean",
        "cosine_mean cosine/9 cosine/10 cosine/12 value/3",
        "cosine_mean cosine/9 cosine/10",
    ),
    ("return", "return/agent/1 loss/agent/0 cosine/seed/0/3", "return/agent/1"),
    ("error", ARMS, "error.active error.random loss"),
    ("monitor/error", "monitor/error monitor/other", "monitor/error"),
]


@pytest.mark.parametrize(("first", "metrics", "drawn"), TABLE)
def test_scalars_and_members_of_the_headline_are_charts_and_learners_and_means_of_arms_are_not(
    first: str, metrics: str, drawn: str
):
    rows, hidden = curve_rows([(name, 1, 0.5) for name in metrics.split()], (first, "success"))
    assert [name for name, _, _ in rows] == [f"train/{name}" for name in metrics.split()]
    assert hidden == {f"train/{name}" for name in {*metrics.split()} - {*drawn.split()}}


def test_the_range_of_the_first_headline_metric_is_that_of_its_learners():
    values = {"error/seed/0": 1.0, "error/seed/1": 3.0, "loss/seed/0": 9.0, "error": 2.0}
    table = [(name, step, step * value) for step in (1, 2) for name, value in values.items()]
    rows, _ = curve_rows(table, ("error", "loss"))
    low, high = "range/error_low", "range/error_high"
    assert rows[len(table) :] == [(low, 1, 1.0), (high, 1, 3.0), (low, 2, 2.0), (high, 2, 6.0)]
    rows, _ = curve_rows([*table, ("error.active/seed/0", 1, 0.5)], ("error", "loss"))
    names = [name for name, _, _ in rows[len(table) + 1 :]]
    assert names == ["range/error.active_low", "range/error.active_high"]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("train/cosine/3", "train/cosine/03"),
        ("train/return/agent/12", "train/return/agent/12"),
        ("range/return.active_low", "train/return.active_low"),
        ("eval/cosine/3", "eval/cosine/3"),
    ],
)
def test_mlflow_sorts_members_by_index_and_has_ranges_beside_their_mean(name: str, shown: str):
    assert drawn_as(name) == shown
