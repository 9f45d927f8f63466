"""Tests that a journal holds every record exactly, even if its writing is interrupted."""

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from pipeline.tracking.journal import DatasetInput, Header, Journal
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.small_project import Disk

HEADER = Header(
    run_key="a1b2",
    experiment="quatrain",
    run_name="allo-a1b2",
    params={"train.steps": "3000"},
    tags={"git.commit": "none"},
    inputs=(DatasetInput("allo", "d1", "training", "data/allo"),),
)


def lines(journal: Journal, kind: str) -> list[dict[str, Any]]:
    return [line for _, line in journal.lines() if line["kind"] == kind]


def kinds(journal: Journal) -> list[str]:
    return [line["kind"] for _, line in journal.lines()]


def begun(folder: Path) -> Journal:
    journal = Journal(folder)
    journal.begin(HEADER)
    return journal


def test_the_next_process_reads_back_every_record(tmp_path: Path):
    values = [0.1, 5e-324, math.nan, math.inf, -math.inf, -0.0]
    journal = begun(tmp_path / "run")
    journal.metrics([("loss", step, value) for step, value in enumerate(values)])
    journal.metrics([("entropy", 2, 1 / 3)])
    journal.end("FINISHED")
    again = Journal(tmp_path / "run")
    assert again.header == HEADER
    assert [repr(value) for _, value in again.history()["loss"]] == list(map(repr, values))
    assert again.history()["entropy"] == [(2, 1 / 3)]
    assert kinds(again) == ["begin", "metrics", "metrics", "end"]


def test_params_metrics_and_data_are_recorded_as_they_are_whatever_variables_hold(
    tmp_path: Path, monkeypatch: Patch
):
    for value in ("default_law", "0.123456789", "data/allo"):
        monkeypatch.setenv(f"{value[:4].upper()}_PASSWORD", value)
    params = {"plates": "default_law", "uri": "http://u:word@host", "long": "default_law" * 600}
    journal = Journal(tmp_path)
    journal.begin(HEADER._replace(params=params))
    journal.metrics([("loss", 1, 0.123456789)])
    (begin,) = lines(journal, "begin")
    assert begin["params"] | {"long": params["long"]} == params
    assert begin["inputs"] == [HEADER.inputs[0]._asdict()]
    assert journal.history()["loss"] == [(1, 0.123456789)]
    (file,) = tmp_path.glob("artifacts/*/long.txt")
    assert file.read_text() == params["long"]


def test_a_repeated_step_keeps_its_first_time_and_value(tmp_path: Path, monkeypatch: Patch):
    seconds = itertools.count(10**18, 10**9)
    monkeypatch.setattr("time.time_ns", lambda: next(seconds))
    journal = begun(tmp_path)
    journal.metrics([("loss", 1, 0.5), ("loss", 2, 0.25)])
    first = lines(journal, "metrics")
    before = (tmp_path / "journal.jsonl").read_bytes()
    journal.metrics([("loss", 1, 0.5)])
    journal.metrics([])
    assert (tmp_path / "journal.jsonl").read_bytes() == before
    resumed = Journal(tmp_path)
    resumed.metrics([("loss", 2, 0.25), ("loss", 3, 0.125), ("loss", 3, 99.0)])
    old, new = lines(resumed, "metrics")
    assert [old] == first
    assert new["rows"] == [["loss", 3, 0.125]]
    assert new["time"] > old["time"]


def test_a_line_is_plain_json_and_no_more_than_mlflow_takes_in_one_call(tmp_path: Path):
    journal = begun(tmp_path)
    journal.metrics([("loss", step, math.nan) for step in range(2300)])
    metrics = lines(journal, "metrics")
    assert [len(line["rows"]) for line in metrics] == [1000, 1000, 300]
    assert len({line["time"] for line in metrics}) == 1
    for line in (tmp_path / "journal.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "kept", [1, 17, -1], ids=["one byte", "some bytes", "all but the line feed"]
)
def test_a_line_torn_by_a_kill_is_cut_off(tmp_path: Path, kept: int):
    journal = begun(tmp_path)
    journal.metrics([("loss", 1, 0.5)])
    whole = (tmp_path / "journal.jsonl").read_bytes()
    journal.metrics([("loss", 2, 0.25)])
    path = tmp_path / "journal.jsonl"
    torn = whole + path.read_bytes()[len(whole) :][:kept]
    path.write_bytes(torn)
    resumed = Journal(tmp_path)
    assert resumed.history() == {"loss": [(1, 0.5)]}
    assert path.read_bytes() == torn, "another process may be writing it"
    resumed.metrics([("loss", 2, 0.75)])
    assert Journal(tmp_path).history() == {"loss": [(1, 0.5), (2, 0.75)]}


def test_damage_before_the_last_line_is_refused(tmp_path: Path):
    begun(tmp_path).metrics([("loss", 1, 0.5)])
    _, metrics = (tmp_path / "journal.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "journal.jsonl").write_bytes(b"{damaged}\n" + metrics)
    message = r"journal\.jsonl line 1: cannot be read; move its folder away"
    with pytest.raises(DataError, match=message):
        Journal(tmp_path)


def test_a_journal_continues_after_a_full_disk(tmp_path: Path, monkeypatch: Patch):
    journal, disk = begun(tmp_path), Disk(monkeypatch, tmp_path)
    disk.takes(0)
    with pytest.raises(OSError, match="No space left on device") as caught:
        journal.metrics([("loss", 1, 0.5)])
    assert str(caught.value.filename).endswith("journal.jsonl")
    assert journal.history() == {}
    disk.takes(math.inf)
    journal.metrics([("loss", 1, 0.5)])
    journal.end("FAILED")
    assert kinds(Journal(tmp_path)) == ["begin", "metrics", "end"]


def test_beginning_again_keeps_the_first_header_and_is_recorded(tmp_path: Path):
    layout = "#." * 4000
    for tag, status in (("none", "KILLED"), ("other", "FINISHED")):
        journal = Journal(tmp_path)
        journal.begin(HEADER._replace(params={"env.layout": layout}, tags={"git.commit": tag}))
        journal.begin(HEADER._replace(params={"env.layout": layout}))
        journal.end(status)
    again = Journal(tmp_path)
    assert kinds(again) == ["begin", "artifact", "resume", "end", "resume", "resume", "end"]
    assert again.header is not None
    assert again.header.tags == {"git.commit": "none"}
    (file,) = lines(again, "artifact")
    assert (tmp_path / "artifacts" / file["file"]).read_text() == layout, "too long for mlflow"


def test_a_journal_without_a_parent_is_read(tmp_path: Path):
    begun(tmp_path)
    path = tmp_path / "journal.jsonl"
    path.write_text(path.read_text().replace(', "parent": null', ""))
    assert "parent" not in path.read_text()
    assert Journal(tmp_path).header == HEADER


def test_a_file_is_kept_as_it_was_and_recorded_again_only_if_it_changed(tmp_path: Path):
    begun(tmp_path / "run")
    plot = tmp_path / "curve.png"
    for content in (b"first", b"first", b"second", b"first"):
        plot.write_bytes(content)
        Journal(tmp_path / "run").artifact(plot, "plots")
    journal = Journal(tmp_path / "run")
    journal.artifact(plot, "elsewhere")
    kept = lines(journal, "artifact")
    files = [tmp_path / "run" / "artifacts" / line["file"] for line in kept]
    assert [file.read_bytes() for file in files] == [b"first", b"second", b"first", b"first"]
    assert {file.name for file in files} == {"curve.png"}
    assert [line["path"] for line in kept] == ["plots"] * 3 + ["elsewhere"]


@pytest.mark.parametrize("name", ["", "a\nb", "../a", "/a", "a//b", "a/", ".", "é#", "n" * 251])
def test_a_name_that_mlflow_refuses_is_refused_at_once(tmp_path: Path, name: str):
    journal, other = begun(tmp_path), Journal(tmp_path / "other")
    with pytest.raises(ValueError, match=r"metric name .*: use up to 250 letters"):
        journal.metrics([(name, 1, 0.5)])
    for kind in ("param", "tag"):
        with pytest.raises(ValueError, match=rf"{kind} name .*: use up to 250 letters"):
            other.begin(HEADER._replace(**{f"{kind}s": {name: "1"}}))
    assert kinds(journal) == ["begin"]
    assert not (tmp_path / "other").exists()


def test_a_run_key_that_breaks_out_of_a_query_another_run_or_status_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"run key .*: use letters, digits"):
        Journal(tmp_path).begin(HEADER._replace(run_key="a' or '"))
    journal = begun(tmp_path / "run")
    with pytest.raises(ValueError, match="run holds run a1b2, not c3d4; use another folder"):
        Journal(tmp_path / "run").begin(HEADER._replace(run_key="c3d4"))
    with pytest.raises(ValueError, match="status 'DONE': use one of FINISHED, FAILED, KILLED"):
        journal.end("DONE")
    with pytest.raises(TypeError):
        journal.metrics([("loss", 1.5, 0.5)])  # type: ignore[list-item]


def test_a_file_half_copied_by_a_killed_writer_goes_when_the_next_one_begins(tmp_path: Path):
    journal = begun(tmp_path / "run")
    half = tmp_path / "run" / "artifacts" / "0123" / "model.zip.01234567.partial"
    half.parent.mkdir(parents=True)
    half.touch()
    journal.begin(HEADER)
    assert not half.exists()
