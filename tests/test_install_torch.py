"""torch comes as the CPU build where no driver is and its index answers, else from pip's own."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Patch

URL = "https://index.example/cu130"


@pytest.fixture
def installer(monkeypatch: Patch, tmp_path: Path) -> ModuleType:
    """The script, on Linux without a driver, where PyTorch's index answers and torch is not
    installed.
    """
    path = ROOT / "requirements" / "install_torch.py"
    spec = importlib.util.spec_from_file_location("install_torch", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.platform, "system", lambda: "Linux")
    for name, value in {"has_driver": False, "answers": True, "installed": None}.items():
        monkeypatch.setattr(module, name, lambda *_, value=value: value)
    monkeypatch.setattr(module, "RECORD", tmp_path / "record")
    return module


@pytest.fixture
def commands(installer: ModuleType, monkeypatch: Patch) -> list[list[str]]:
    """What pip was told."""
    lines: list[list[str]] = []

    def run(command: tuple[str, ...], **_: Any) -> None:
        lines.append(list(command[len(installer.PIP) :]))

    monkeypatch.setattr(installer.subprocess, "run", run)
    return lines


def test_the_cpu_s_build_is_taken_where_no_driver_is_and_its_index_answers(
    installer: ModuleType, monkeypatch: Patch, capsys: Capture
):
    assert [installer.chosen(each) for each in ("auto", "", URL)] == [installer.CPU, "", URL]
    with monkeypatch.context() as patched:
        patched.setattr(installer, "has_driver", lambda: True)
        assert installer.chosen("auto") == ""
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(installer, "answers", lambda _: False)
    assert installer.chosen("auto") == ""
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"setup: {installer.CPU} does not answer: torch")
    monkeypatch.undo()
    assert not installer.answers("http://127.0.0.1:9")


def test_torch_is_installed_once_and_again_only_for_another_build_or_version(
    installer: ModuleType, commands: list[list[str]], monkeypatch: Patch
):
    pinned = ["--requirement", str(ROOT / "requirements" / "torch.txt")]
    version = installer.PINNED.read_text().rpartition("==")[2].strip()
    installer.main("auto")
    assert commands == [["install", "--index-url", installer.CPU, *pinned]]
    commands.clear()
    monkeypatch.setattr(installer, "installed", lambda: version)
    for asked in ("auto", installer.CPU):
        installer.main(asked)
    assert commands == []
    installer.main(URL)
    removed = ["uninstall", "--yes", "torch"]
    assert commands == [removed, ["install", "--index-url", URL, *pinned]]
    commands.clear()
    installer.main("")
    assert commands == [removed, ["install", *pinned]]
    commands.clear()
    monkeypatch.setattr(installer, "installed", lambda: "1.0")
    installer.main("auto")
    assert commands == [removed, ["install", "--index-url", installer.CPU, *pinned]]
