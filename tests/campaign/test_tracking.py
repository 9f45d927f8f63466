"""Tracking: broken servers, damaged journals and cursors, wrong clocks and addresses, old backups.

Whatever happens, `sync` ends in time with a line, and what was recorded arrives exactly once.
"""

import json
import random
import re
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException
from mlflow.tracking._tracking_service.client import TrackingServiceClient

from pipeline.cli import main
from pipeline.tracking import delivery, pending, registry, store
from pipeline.tracking.journal import Journal
from pipeline.tracking.journal_line import decoded, problem_of
from pipeline.tracking.shipper import Shipper
from quatrain.errors import DataError
from tests.campaign.obstacles import put
from tests.campaign.promises import Outcome, accepted, broken, refused, see
from tests.campaign.tracking_cases import (
    BEGIN,
    CURSORS,
    END,
    LEGAL,
    METRICS,
    TIMES,
    VALID,
    Change,
    damaged_lines,
    journal_of,
)
from tests.pipeline import conftest as stores
from tests.pipeline.faulty_server import ENDLESS, NONSENSE, faulty
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import (
    arrived,
    client_of,
    expected,
    header,
    recorded,
    recorded_model,
    runs_of,
)

template, upstream, uri = stores.template, stores.upstream, stores.uri

# The thread of a call that is given up leaves its socket to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

CALL_SECONDS = 0.5
# A call and the health before it, several times, on a busy machine.
LONGEST_SYNC = 20.0
FAULTS = (*ENDLESS, "hang", "redirect", "half body", "bomb", "bad gzip", "reset", "500", "503")
REFUSALS = ("429", "control")
DAMAGED = damaged_lines()


@pytest.fixture(autouse=True)
def short_deadlines(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")
    monkeypatch.setattr(store, "CALL_SECONDS", CALL_SECONDS)
    monkeypatch.setattr(pending, "FIRST_PAUSE", 0.01)


@pytest.fixture
def run_key(tmp_path: Path) -> str:
    return tmp_path.name


@pytest.fixture
def folder(tmp_path: Path, run_key: str) -> Path:
    """A small journal of a run with a metric, a file and an end."""
    folder = tmp_path / ".state" / "journal" / "train@allo-1"
    journal = Journal(folder)
    journal.begin(header(run_key, params={"train.steps": "3"}))
    journal.metrics([("train/loss", step, 1 / (step + 3)) for step in range(40)])
    (tmp_path / "curve.png").write_bytes(b"picture")
    journal.artifact(tmp_path / "curve.png", "plots")
    journal.end("FINISHED")
    journal.close()
    return folder


def synced(uri: str, monkeypatch: Patch, capsys: Capture, *arguments: str) -> Outcome:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    if not uri.startswith("http"):  # a file on this machine, whose other programs may be at work
        monkeypatch.setattr(store, "CALL_SECONDS", 30.0)
    started = time.monotonic()
    answer = see(lambda: main(["sync", "--wait", "0", *arguments]), capsys)
    if time.monotonic() - started > LONGEST_SYNC:
        broken("hang", answer.said)
    return answer


def delivered(uri: str, run_key: str, folder: Path) -> None:
    """The store has all of a journal, once."""
    runs = runs_of(client_of(uri), run_key)
    if len(runs) != 1:
        broken("lost", f"{len(runs)} runs instead of one")
    if arrived(client_of(uri), run_key) != expected(Journal(folder)):
        broken("lost", "the metrics differ")
    status = runs[0].info.status
    files = [file.path for file in client_of(uri).list_artifacts(runs[0].info.run_id, "plots")]
    if (status, files) != ("FINISHED", ["plots/curve.png"]):
        broken("lost", f"{status}, {files}")


@pytest.mark.parametrize("calls", [0, 1, 2, 4, 7, 10, 14])
@pytest.mark.parametrize("fault", [*FAULTS, *REFUSALS])
def test_a_broken_server_ends_each_call_in_time_and_loses_nothing(
    upstream: int,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    fault: str,
    calls: int,
):
    with faulty(upstream) as server:
        server.fault, server.calls = fault, calls
        refused(synced(server.uri, monkeypatch, capsys), 6, "1 journals are pending: ")
        server.fault = ""
        monkeypatch.setattr(store, "CALL_SECONDS", 30.0)
        accepted(synced(server.uri, monkeypatch, capsys))
        delivered(server.uri, run_key, folder)


@pytest.mark.parametrize("fault", [*FAULTS, *REFUSALS, *NONSENSE])
def test_an_ill_server_is_left_in_time(
    folder: Path, monkeypatch: Patch, capsys: Capture, fault: str
):
    assert folder.is_dir()
    with faulty() as server:
        server.fault, server.is_ill = fault, True
        refused(synced(server.uri, monkeypatch, capsys), 6, "1 journals are pending: ")


@pytest.mark.parametrize("calls", [0, 2, 4, 7, 10])
@pytest.mark.parametrize("times", [1, 6])
@pytest.mark.parametrize("fault", NONSENSE)
def test_nonsense_leaves_no_run_that_nothing_delivers_again(
    upstream: int,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    fault: str,
    times: int,
    calls: int,
):
    monkeypatch.setattr(store, "CALL_SECONDS", 30.0)
    with faulty(upstream) as server:
        server.fault, server.calls, server.times = fault, calls, times
        first = synced(server.uri, monkeypatch, capsys)
        (refused(first, 6) if first.code else accepted(first))
        server.fault = ""
        accepted(synced(server.uri, monkeypatch, capsys))
        delivered(server.uri, run_key, folder)


@pytest.mark.parametrize("fault", ["drip headers", "drip body", "hang", "{}", "page", "redirect"])
@pytest.mark.parametrize("calls", [0, 9, 16, 20, 24, 28, 32])
def test_a_model_is_registered_once_whatever_a_server_answers_meanwhile(
    upstream: int,
    tmp_path: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    fault: str,
    calls: int,
):
    journal = recorded_model(tmp_path / ".state" / "journal" / "train@allo-1", run_key)
    journal.close()
    with faulty(upstream) as server:
        server.fault, server.calls, server.times = fault, calls, 1
        if fault not in ENDLESS and fault != "hang":
            monkeypatch.setattr(store, "CALL_SECONDS", 30.0)
        monkeypatch.setattr(store, "UPLOAD_RATE", 1e12)
        first = synced(server.uri, monkeypatch, capsys)
        (refused(first, 6) if first.code else accepted(first))
        server.fault = ""
        monkeypatch.setattr(store, "CALL_SECONDS", 30.0)
        accepted(synced(server.uri, monkeypatch, capsys))
        (run,) = runs_of(client_of(server.uri), run_key)
        query = f"run_id = '{run.info.run_id}'"
        versions = client_of(server.uri).search_model_versions(query)
        if len(versions) != 1:
            broken("lost", f"{len(versions)} versions")


def test_a_wrong_place_for_files_is_not_kept(
    uri: str, tmp_path: Path, run_key: str, monkeypatch: Patch, capsys: Capture
):
    recorded_model(tmp_path / ".state" / "journal" / "train@allo-1", run_key).close()
    plain, answers = TrackingServiceClient.get_logged_model, []

    def nowhere_at_first(client: Any, model_id: str) -> Any:
        answers.append(plain(client, model_id))
        if len(answers) == 1:
            answers[0]._artifact_location = ""
        return answers[-1]

    monkeypatch.setattr(TrackingServiceClient, "get_logged_model", nowhere_at_first)
    refused(synced(uri, monkeypatch, capsys), 6, "1 journals are pending: ")
    accepted(synced(uri, monkeypatch, capsys))


@pytest.mark.parametrize("fault", ["drip headers", "drip body", "drip continue", "flood", "hang"])
@pytest.mark.parametrize("command", ["aliases", "restored", "page", "shipper"])
def test_no_other_code_waits_longer_for_a_server(
    folder: Path, tmp_path: Path, monkeypatch: Patch, fault: str, command: str
):
    from pipeline.runtime.errors import StoreUnavailable
    from pipeline.tracking import backfill, runs_page

    with faulty() as server:
        server.fault = fault
        monkeypatch.setenv("MLFLOW_TRACKING_URI", server.uri)
        started = time.monotonic()
        if command == "aliases":
            alias = registry.Alias("quatrain-allo", "k1")
            with pytest.raises((store.Unreachable, MlflowException)):
                registry.set_aliases(tmp_path, [alias])
        elif command == "restored":
            with pytest.raises(StoreUnavailable):
                backfill.metrics_in_store(server.uri, "k1")
        elif command == "page":
            assert runs_page.runs_page(tmp_path).endswith("workflowType=machine_learning")
        else:
            assert not Shipper(Journal(folder), server.uri, wait_seconds=5).finish()
        if time.monotonic() - started > LONGEST_SYNC:
            broken("hang", command)


def intact_beside(folder: Path) -> str:
    """Records another journal that must be delivered all the same; returns its key."""
    key = f"intact-{folder.parents[2].name}"
    recorded(folder.parent / "train@iqn-2", key).close()
    return key


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_journal_is_named_and_the_others_are_delivered(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
    name: str,
):
    (folder / "journal.jsonl").write_bytes(DAMAGED[name])
    key = intact_beside(folder)
    answer = synced(uri, monkeypatch, capsys)
    refused(answer, 6, r"1 journals are pending: ")
    if not re.search(r"journal\.jsonl line \d+: cannot be read; move its folder away", answer.said):
        broken("unclear", answer.said)
    assert (folder / "journal.jsonl").read_bytes() == DAMAGED[name]
    if arrived(client_of(uri), key) != expected(Journal(folder.parent / "train@iqn-2")):
        broken("lost", "the other journal")


def folder_in_place(path: Path) -> None:
    path.unlink()
    path.mkdir()


def link_in_place(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


@pytest.mark.parametrize("change", [folder_in_place, link_in_place])
def test_something_else_in_the_place_of_a_journal_is_named(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
    change: Callable[[Path], None],
):
    change(folder / "journal.jsonl")
    answer = synced(uri, monkeypatch, capsys)
    refused(answer, 6, r"journal\.jsonl is no file; move its folder away")
    with pytest.raises(DataError):
        Journal(folder)


@pytest.mark.parametrize("name", LEGAL)
def test_a_journal_that_a_kill_or_an_older_version_left_is_delivered(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
    name: str,
):
    (folder / "journal.jsonl").write_bytes(LEGAL[name])
    accepted(synced(uri, monkeypatch, capsys))
    journal = Journal(folder)
    if journal.header is not None:
        points = {key: set(rows) for key, rows in arrived(client_of(uri), "k1").items()}
        recorded_points = {key: set(rows) for key, rows in expected(journal).items()}
        if points != recorded_points:
            broken("lost", name)


def test_a_long_line_and_a_file_that_cannot_be_read_are_told(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
):
    path = folder / "journal.jsonl"
    path.write_bytes(journal_of(BEGIN) + b"x" * 10**8 + b"\n" + journal_of(END))
    refused(synced(uri, monkeypatch, capsys), 6, r"line 2: cannot be read")

    def fail(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", fail)
        with pytest.raises(DataError, match="cannot be read: Permission denied; mend that"):
            Journal(folder)


@pytest.mark.parametrize("seed", range(12))
def test_a_mutated_journal_is_refused_or_delivered(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
):
    dice = random.Random(seed)
    whole = journal_of(*VALID, {"kind": "resume", "time": 5}, METRICS, END)
    number = 300
    for _ in range(number):
        data = bytearray(whole)
        for _ in range(dice.choice((1, 1, 2, 20))):
            place = dice.randrange(len(data))
            match dice.randrange(5):
                case 0:
                    data[place] = dice.randrange(256)
                case 1:
                    del data[place : place + dice.randrange(1, 40)]
                case 2:
                    data[place:place] = data[:place][-dice.randrange(1, 60) :]
                case 3:
                    data[place:place] = dice.choice((b"\n", b"\0", b'"', b"{", b"1e999", b"null"))
                case _:
                    del data[place:]
            if not data:
                break
        tmp_path.joinpath("journal.jsonl").write_bytes(bytes(data))
        try:
            journal = Journal(tmp_path)
            lines = [line for _, line in journal.lines()]
        except DataError:
            continue
        except Exception as error:
            broken("traceback", f"{error!r}: {bytes(data)!r}")
        assert all(problem_of(line) is None for line in lines)
        assert not lines or journal.header is not None
    record_property("generated", number)


def test_any_json_is_judged(record_property: Callable[[str, object], None]):
    from hypothesis import given, settings
    from hypothesis import strategies as st

    answer = []
    value = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    kinds = st.sampled_from([*VALID, {"kind": "model"}, {"kind": "tags"}, {"kind": "artifact"}])

    @settings(max_examples=400, deadline=None, database=None)
    @given(kinds, st.dictionaries(st.sampled_from([*BEGIN, *METRICS, *END, "file"]), value))
    def judge(line: dict[str, Any], changes: dict[str, Any]) -> None:
        answer.append(1)
        text = json.dumps(line | changes).encode() + b"\n"
        problem = problem_of(decoded(text))
        assert problem is None or problem.startswith("it")

    judge()
    record_property("generated", len(answer))


@pytest.mark.parametrize("name", CURSORS)
def test_a_wrong_cursor_loses_and_doubles_nothing(
    uri: str,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    name: str,
):
    accepted(synced(uri, monkeypatch, capsys))
    change: Change = CURSORS[name]
    change(folder / "cursor.json")
    accepted(synced(uri, monkeypatch, capsys))
    delivered(uri, run_key, folder)


@pytest.mark.parametrize("thing", ["pipe", "socket", "device", "loop", "link to nothing"])
def test_what_is_no_cursor_is_replaced_and_never_waited_for(
    uri: str,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    thing: str,
):
    accepted(synced(uri, monkeypatch, capsys))
    put(thing, folder / "cursor.json")
    accepted(synced(uri, monkeypatch, capsys))
    delivered(uri, run_key, folder)


@pytest.mark.parametrize("thing", ["folder", "pipe", "socket", "device", "loop", "missing"])
def test_a_lost_copy_of_a_file_is_named_and_recorded_again(
    uri: str,
    folder: Path,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
    thing: str,
):
    (copy,) = folder.glob("artifacts/*/curve.png")
    copy.unlink()
    if thing != "missing":
        put(thing, copy)
    says = r"curve\.png: .*; restore it, or move its journal's folder away"
    refused(synced(uri, monkeypatch, capsys), 6, says)
    if thing == "folder":
        return
    journal = Journal(folder)
    journal.artifact(tmp_path / "curve.png", "plots")
    journal.close()
    if copy.read_bytes() != b"picture":
        broken("lost", thing)


def test_a_folder_in_the_place_of_the_cursor_is_named(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
):
    (folder / "cursor.json").mkdir()
    refused(synced(uri, monkeypatch, capsys), 6, r"cursor\.json is a folder; move it away")


@pytest.mark.parametrize("name", TIMES)
@pytest.mark.parametrize("kind", ["begin", "metrics", "end", "all"])
def test_whatever_the_clock_said_metrics_arrive(
    uri: str,
    folder: Path,
    monkeypatch: Patch,
    capsys: Capture,
    name: str,
    kind: str,
):
    delivery._tell_of_clock.cache_clear()
    lines = [
        line | {"time": TIMES[name]} if kind in (line["kind"], "all") else line for line in VALID
    ]
    (folder / "journal.jsonl").write_bytes(journal_of(*lines))
    answer = synced(uri, monkeypatch, capsys)
    accepted(answer)
    if answer.said.count("the clock was before 1970 or after 9999") != 1:
        broken("silent", answer.said)
    if arrived(client_of(uri), "k1") != expected(Journal(folder)):
        broken("lost", name)
    assert runs_of(client_of(uri), "k1")[0].info.status == "FINISHED"


def database(uri: str) -> Path:
    path = store.database_of(uri)
    assert path is not None
    return path


def backup(uri: str, old: Path) -> None:
    with closing(sqlite3.connect(database(uri))) as source, closing(sqlite3.connect(old)) as target:
        source.backup(target)


def restore(uri: str, old: Path) -> None:
    client_of(uri)._tracking_client.store.engine.dispose()
    with closing(sqlite3.connect(old)) as source, closing(sqlite3.connect(database(uri))) as target:
        source.backup(target)


@pytest.mark.parametrize("arguments", [(), ("--from-start",)])
@pytest.mark.parametrize("steps", range(6))
def test_a_store_of_an_older_backup_gets_again_what_it_lost(
    uri: str,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    steps: int,
    arguments: tuple[str, ...],
):
    with closing(delivery.Delivery(Journal(folder), uri)) as partly:
        for _ in range(steps):
            partly.step()
    backup(uri, database(uri).with_name("old.db"))
    accepted(synced(uri, monkeypatch, capsys))
    restore(uri, database(uri).with_name("old.db"))
    accepted(synced(uri, monkeypatch, capsys, *arguments))
    delivered(uri, run_key, folder)


def run_deleted(client: Any, run_id: str) -> None:
    client.delete_run(run_id)


def files_deleted(client: Any, run_id: str) -> None:
    shutil.rmtree(Path(client.get_run(run_id).info.artifact_uri.removeprefix("file://")))


def end_undone(client: Any, run_id: str) -> None:
    client.update_run(run_id, "RUNNING")


@pytest.mark.parametrize("change", [run_deleted, files_deleted, end_undone])
@pytest.mark.parametrize("arguments", [(), ("--from-start",)])
def test_what_a_store_lost_is_delivered_again(
    uri: str,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
    change: Callable[[Any, str], None],
    arguments: tuple[str, ...],
):
    accepted(synced(uri, monkeypatch, capsys))
    change(client_of(uri), runs_of(client_of(uri), run_key)[0].info.run_id)
    accepted(synced(uri, monkeypatch, capsys, *arguments))
    delivered(uri, run_key, folder)


def test_what_a_complete_store_has_is_sent_again_only_if_asked(
    uri: str,
    folder: Path,
    run_key: str,
    monkeypatch: Patch,
    capsys: Capture,
):
    counts = [
        synced(uri, monkeypatch, capsys, *arguments).said.count("40 metrics and 1 files sent\n")
        for arguments in ((), (), ("--from-start",))
    ]
    assert counts == [2, 0, 2]
    delivered(uri, run_key, folder)
