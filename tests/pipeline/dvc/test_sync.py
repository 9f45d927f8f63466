"""What the stages could not deliver is delivered later, and what is left is told."""

from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.tracking import pending
from pipeline.tracking.journal import Journal
from pipeline.tracking.registry import Alias
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import arrived, client_of, expected, recorded
from tests.pipeline.small_project import NOBODY


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: Patch, uri: str) -> list[Path]:
    """Those of a working folder whose store is `uri`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    folders = [tmp_path / ".state" / "journal" / f"train@allo-{i}" for i in (1, 2)]
    for folder, run_key in zip(folders, ("k1", "k2"), strict=True):
        recorded(folder, run_key).close()
    return folders


def test_without_a_server_it_ends_with_6(journals: list[Path], monkeypatch: Patch, capsys: Capture):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY.replace("//", "//me:hunter2@"))
    monkeypatch.setattr(pending, "FIRST_PAUSE", 0.01)
    assert main(["sync", "--wait", "0.05"]) == 6
    printed = capsys.readouterr()
    why = f"{len(journals)} journals are pending: no server answers; run `make sync` when that is"
    assert printed.err == f"sync: {why} mended [exit 6]\n"
    assert "0 of 2 journals are complete at http://127.0.0.1:" in printed.out
    assert "hunter2" not in printed.out


def test_sync_delivers_every_journal_once_and_the_others_where_one_is_damaged(
    journals: list[Path], uri: str, capsys: Capture
):
    first, second = (folder / "journal.jsonl" for folder in journals)
    intact = first.read_bytes()
    first.write_bytes(b"{damaged}\n" + intact)
    assert main(["sync", "--wait", "0"]) == 6
    printed = capsys.readouterr()
    assert "journal.jsonl line 1: cannot be read; move its folder away" in printed.err
    assert "train@allo-2 (allo-k2, key k2): 1,480 metrics and 2 files sent" in printed.out

    first.write_bytes(intact)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out == (
        "train@allo-1 (allo-k1, key k1): 1,480 metrics and 2 files sent\n"
        "train@allo-2 (allo-k2, key k2): 0 metrics and 0 files sent\n"
        f"2 of 2 journals are complete at {uri}; 1,480 metrics and 2 files sent\n"
    )
    for path, run_key in ((first, "k1"), (second, "k2")):
        assert arrived(client_of(uri), run_key) == expected(Journal(path.parent))


def test_sync_with_nothing_to_do_says_so(tmp_path: Path, monkeypatch: Patch, capsys: Capture):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert main(["sync"]) == 0
    assert capsys.readouterr().out.startswith("0 of 0 journals are complete at sqlite:///")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("journals")
def test_aliases_that_cannot_move_are_told(tmp_path: Path, monkeypatch: Patch, capsys: Capture):
    (tmp_path / "params.yaml").touch()
    aliases = [Alias("quatrain-allo", "k1")]
    monkeypatch.setattr("pipeline.tracking.backfill.catch_up", lambda *_: 0)
    monkeypatch.setattr("pipeline.tracking.registry.expected_aliases", lambda *_: aliases)
    assert main(["sync"]) == 0
    why = "quatrain-allo@champion: run k1 has no version in this store\n"
    assert capsys.readouterr().out.endswith(why)

    monkeypatch.setattr("pipeline.tracking.registry.set_aliases", lambda *_, **__: [][0])
    assert main(["sync"]) == 6
    printed = capsys.readouterr()
    assert "2 of 2 journals are complete at " in printed.out
    assert printed.err == (
        "sync: the registry's aliases are pending: what it holds or answers cannot be read "
        "(IndexError: list index out of range); "
        "run `make sync` when that is mended [exit 6]\n"
    )


def test_what_is_unrecorded_stops_no_delivery(
    journals: list[Path], tmp_path: Path, capsys: Capture
):
    smoke = tmp_path / ".presets" / "smoke"
    smoke.mkdir(parents=True)
    for work in (tmp_path, smoke):
        (work / "params.yaml").write_text("seed: -1\n")
    assert main(["sync"]) == 2
    printed = capsys.readouterr()
    assert f"{len(journals)} of 2 journals are complete at " in printed.out
    for line, preset in zip(printed.err.splitlines(), ("default", "smoke"), strict=True):
        assert line.startswith(f"sync: preset {preset}: params.yaml: ")
        assert line.endswith("; what a cache restored there is not recorded [exit 2]")
