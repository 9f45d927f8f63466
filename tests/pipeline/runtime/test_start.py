"""A command whose surroundings are broken ends at once, with one line."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from pipeline.runtime import console
from pipeline.runtime.command import run_guarded
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch


def test_a_line_to_a_reader_that_has_gone_stops_nothing(monkeypatch: Patch):
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w", buffering=1) as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        console.info("nobody hears it")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), write)  # what is left of it goes there


def gone(folder: Path, patch: Patch) -> None:
    (folder / "gone").mkdir()
    patch.chdir(folder / "gone")
    (folder / "gone").rmdir()


def homeless(_: Path, patch: Patch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    patch.delenv("HOME")
    patch.setattr("pwd.getpwuid", nobody)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (gone, "the current folder was removed; go to one that is there, then run again"),
        (homeless, f"user {os.getuid()} has no home folder; set HOME to a folder, then run again"),
    ],
)
def test_without_a_folder_that_all_libraries_ask_for_nothing_begins(
    change: Callable[[Path, Patch], None],
    says: str,
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: Capture,
):
    change(tmp_path, monkeypatch)
    assert run_guarded("probe", lambda: pytest.fail("it begins")) == 5
    assert capsys.readouterr().err == f"probe: {says} [exit 5]\n"


@pytest.mark.full
def test_a_full_output_is_exit_5():
    code = (
        "import sys; from pipeline.runtime.command import run_guarded\n"
        "def work():\n  for _ in range(999): print('x' * 99)\n"
        "sys.exit(run_guarded('probe', work))"
    )
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=full)
    assert done.returncode == 5
