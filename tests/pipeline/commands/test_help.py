"""Every command says what it does and which options it has."""

import importlib
import subprocess
import sys
from pathlib import Path

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


HEAVY = ("dvc", "gymnasium", "jax", "matplotlib", "mlflow", "optuna", "ray", "scipy.stats", "torch")
"""Libraries that take long to load."""
ASKS = f"""
import runpy, sys
sys.argv = [{{module!r}}, "--help"]
try:
    runpy.run_module(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    loaded = [name for name in {HEAVY} if name in sys.modules]
    sys.exit(ended.code or ", ".join(loaded) or 0)
"""
MODULES = [*(f"commands.{name}" for name in NAMES), "collect", "train", "evaluate", "report"]


@pytest.mark.parametrize("module", MODULES)
def test_help_reads_no_file_and_loads_no_large_library(module: str, tmp_path: Path):
    """Its folder has neither params.yaml nor data, nor anything else."""
    code = ASKS.format(module=f"pipeline.{module}")
    path = ["-c", f"import sys; sys.path[:0] = {[str(ROOT), str(ROOT / 'src')]}\n{code}"]
    ended = subprocess.run(
        [sys.executable, *path], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    folder, _, verb = module.rpartition(".")
    program = f"quatrain {verb}" if folder else f"python -m pipeline.{module}"
    assert ended.stdout.startswith(f"usage: {program} [-h]")
    assert list(tmp_path.iterdir()) == []
