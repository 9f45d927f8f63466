"""`quatrain VERB` runs a verb as make does, and says in one line why it cannot."""

import os
import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import quatrain
from pipeline import menu
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch

NAMES = sorted(path.stem for path in (ROOT / "pipeline" / "commands").glob("[a-z]*.py"))


@pytest.fixture
def started(monkeypatch: Patch) -> list[list[str]]:
    """Command lines that replaced this process, or would have."""
    lines: list[list[str]] = []

    def replace(_: str, arguments: list[str]) -> None:
        lines.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(menu.os, "execv", replace)
    for name in ("PATH", "PYTHONPATH", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, os.environ.get(name, ""))
    return lines


def checkout(folder: Path) -> Path:
    for name in menu.CHECKOUT_FILES:
        (folder / name).touch()
    return folder


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_has_one_line_for_each_verb(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert menu.main(arguments) == 0
    lines = re.findall(r"^  (\w+) +(\S.*)$", capsys.readouterr().out, re.MULTILINE)
    assert [name for name, _ in lines] == NAMES
    for name, summary in lines:
        assert summary == import_module(f"pipeline.commands.{name}").main.summary


def test_the_version_is_the_package_s(capsys: pytest.CaptureFixture[str]) -> None:
    assert menu.main(["--version"]) == 0
    assert capsys.readouterr().out == f"quatrain {quatrain.__version__}\n"


def test_a_verb_runs_with_the_code_of_the_folder_it_is_called_in(
    started: list[list[str]], tmp_path: Path, monkeypatch: Patch
) -> None:
    monkeypatch.chdir(checkout(tmp_path))
    with pytest.raises(SystemExit):
        menu.main(["promote", "allo", "--why", "a larger map"])
    assert started == [
        [sys.executable, "-m", "pipeline.commands.promote", "allo", "--why", "a larger map"]
    ]
    assert os.environ["PYTHONPATH"] == f"{tmp_path}/src:{tmp_path}"
    assert os.environ["PATH"].startswith(f"{Path(sys.executable).parent}:")


def test_outside_of_a_checkout_one_line_says_what_to_do(
    started: list[list[str]],
    tmp_path: Path,
    monkeypatch: Patch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    missing = "quatrain: repro works in a checkout, and here is no params.yaml and no dvc.yaml"
    assert menu.main(["repro"]) == 2
    remedy = "git clone the repository, and run it in that folder"
    assert capsys.readouterr().err == f"{missing}; {remedy} [exit 2]\n"
    checkout(tmp_path)
    assert menu.main(["repro"]) == 2
    assert capsys.readouterr().err == f"{missing}; cd {tmp_path} [exit 2]\n"
    assert not started
    with pytest.raises(SystemExit):
        menu.main(["repro", "--help"])
    assert len(started) == 1


@pytest.mark.parametrize(
    ("verb", "meant"), [("repo", "; did you mean repro"), ("qqq", ""), ("../x", "")]
)
def test_an_unknown_verb_is_refused_with_the_nearest(
    verb: str, meant: str, started: list[list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert menu.main([verb, "--help"]) == 2
    assert capsys.readouterr().err == (
        f"quatrain: there is no verb {verb!r}{meant}; `quatrain --help` lists them [exit 2]\n"
    )
    assert not started


def test_a_core_without_the_pipeline_says_what_to_install(
    started: list[list[str]], monkeypatch: Patch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(menu, "find_spec", lambda name: None if name in ("dvc", "torch") else name)
    assert menu.main(["gate"]) == 2
    assert capsys.readouterr().err == (
        "quatrain: gate needs dvc, torch: pip install 'quatrain[pipeline]', "
        "or `make setup` in a checkout [exit 2]\n"
    )
    assert not started


def test_the_console_script_is_the_menu() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module, _, function = project["scripts"]["quatrain"].partition(":")
    assert getattr(import_module(module), function) is menu.main
