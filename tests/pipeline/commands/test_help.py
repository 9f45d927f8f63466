"""Every command says what it does and which options it has."""

import importlib

import pytest

from pipeline.runtime.command import Command
from tests.conftest import ROOT

NAMES = sorted(path.stem for path in (ROOT / "pipeline" / "commands").glob("[a-z]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_help_tells_the_purpose_and_only_defaults_that_are_something(
    name: str, capsys: pytest.CaptureFixture[str]
):
    command: Command = importlib.import_module(f"pipeline.commands.{name}").main
    with pytest.raises(SystemExit) as ended:
        command(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    assert said.startswith(f"usage: quatrain {name}")
    assert " ".join(command.summary.split())[:40] in said
    for nothing in ("None", "False", "''", "[]"):
        assert f"(default: {nothing})" not in said
