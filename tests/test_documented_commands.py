"""Every command in README.md, CONTRIBUTING.md and docs/ is right, or named as not run."""

import importlib
import io
import re
import shlex
import subprocess
from contextlib import redirect_stdout, suppress
from functools import cache

import pytest

from pipeline.runtime.command import Command
from tests.conftest import ROOT
from tests.documented_commands import Shown, commands, shown

RUN = {
    "dvc exp run": "tests/pipeline/test_clone.py",
    "dvc exp show": "tests/pipeline/test_clone.py",
    "dvc metrics diff": "tests/pipeline/test_clone.py",
    "dvc pull": "tests/pipeline/dvc/test_remotes.py",
    "dvc push": "tests/pipeline/dvc/test_remotes.py",
    "dvc remote add": "tests/pipeline/test_clone.py",
    "dvc repro": "tests/pipeline/test_clone.py",
    "mlflow server": "tests/pipeline/tracking",
    "torchrun": "tests/pipeline/runtime/test_ranks.py",
}
"""Beginning of a command -> the file or folder of tests that runs it."""
NOT_RUN = {
    "curl": "asks a server; tests/pipeline/tracking/test_model_export.py asks what answers there",
    "docker": "no Docker where tests run; tests/test_dockerfile.py reads what it would build",
    "dvc checkout": "a name within a sentence",
    "dvc fetch": "as dvc pull, which is run",
    "dvc gc": "removes from a cache, by dvc alone",
    "dvc params diff": "shows changes, by dvc alone",
    "dvc remote modify": "settings of a remote that a user has",
    "export": "sets variables of a shell",
    "git": "git's own",
    "kubectl": "no Kubernetes where tests run; tests/test_kuberay.py checks the files",
    "mlflow db upgrade": "of a server's database; test_store.py upgrades one",
    "mlflow models serve": "a server; test_model_export.py asks what it serves",
    "pip install -r requirements/gpu.txt": "3 GB; needs a GPU",
    "pre-commit install": "a hook in .git of a developer",
    "python -c": "makes a token",
    "ray job submit": "needs a head with a dashboard",
    "ray start": "refused on 127.0.0.1; tests/pipeline/scaling/ray_node.py starts what it starts",
    "sbatch": "no Slurm where tests run",
    "source .venv/bin/activate": "changes the shell of a user",
    "srun": "no Slurm where tests run",
    "umask": "changes the shell of a user",
}
"""Beginning of a command that no test runs -> why."""
COMMANDS = [each for each in shown() if each.words[0] not in ("make", "python", "pytest")]
MAKE = sorted({each.text for each in shown() if each.words[0] == "make"})
MAKEFILE = (ROOT / "Makefile").read_text()


def begins(text: str, beginning: str) -> bool:
    return f"{text} ".startswith(f"{beginning} ")


@pytest.mark.parametrize("text", sorted({each.text for each in COMMANDS}))
def test_another_programs_command_is_run_by_a_test_or_named_as_not_run(text: str):
    listed = [name for name in (*RUN, *NOT_RUN) if begins(text, name)]
    assert listed, f"no test runs `{text}`: add it to RUN or, with a reason, to NOT_RUN"


def test_the_lists_name_only_what_is_shown_and_tests_that_are_there():
    texts = [each.text for each in shown()]
    assert [name for name in (*RUN, *NOT_RUN) if not any(begins(t, name) for t in texts)] == []
    assert [file for file in RUN.values() if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("text", MAKE)
def test_make_knows_target_variables_and_options(text: str):
    words = shlex.split(text)[1:]
    variables = [word.partition("=")[0] for word in words if "=" in word]
    assert [name for name in variables if f"$({name})" not in MAKEFILE] == []
    dry = subprocess.run(
        ["make", "-n", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert dry.returncode == 0, dry.stderr
    for line in dry.stdout.splitlines():
        check_module(line)


PYTHON = sorted({each.text for each in shown() if each.words[:2] == ("python", "-m")})


@pytest.mark.parametrize("text", PYTHON)
def test_a_module_that_is_run_is_there_and_has_the_options(text: str):
    check_module(text)


def test_examples_and_tests_that_are_named_are_there():
    named = [
        word for each in shown() for word in each.words if re.match(r"(tests|examples)/", word)
    ]
    assert named
    assert [word for word in named if not (ROOT / word).exists()] == []


def check_module(line: str) -> None:
    """Checks the module of `... -m MODULE ...`, and the options that a command of ours is given."""
    match = re.search(r"-m ((?:pipeline|benchmarks|tests)[\w.]*)(.*)", line)
    if not match:
        return
    path = ROOT / match[1].replace(".", "/")
    assert path.with_suffix(".py").exists(), match[1]
    if match[1].startswith("pipeline.commands."):
        options = re.findall(r"(?<!\S)--[a-z][\w-]*", match[2])
        assert [option for option in options if option not in help_of(match[1])] == []


@cache
def help_of(module: str) -> str:
    command: Command = importlib.import_module(module).main
    output = io.StringIO()
    with redirect_stdout(output), suppress(SystemExit):
        command(["--help"])
    return output.getvalue()


def test_commands_are_read_from_lines_with_variables_comments_and_several_commands():
    line = "A=1 B=2 make repro PRESET='x y'  # why\n"
    assert list(commands(line)) == [("make", "repro", "PRESET=x y")]
    assert list(commands("umask 077; ls && .venv/bin/pip install x | cat")) == [
        ("umask", "077"),
        ("pip", "install", "x"),
    ]
    assert list(commands("it's no command")) == []
    assert {Shown("README.md", ("make", "repro")), Shown("README.md", ("make",))} <= set(shown())
