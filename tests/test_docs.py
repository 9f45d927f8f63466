"""The documentation: every command is run by a test or named as not run; sentences are short; the
site builds.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from dvc.cli import parse_args

from tests.conftest import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TABLE = ROOT / "tests/documented_commands.txt"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LEAD = (
    *("make", "dvc", "python", "mlflow", "docker", "pip", "ray", "kubectl", "srun"),
    *("sbatch", "git", "source", "export", "curl", "quatrain"),
)
INLINE = re.compile(rf"`((?:{'|'.join(LEAD)}) [^`]+)`")
SHELL = ("", "bash", "sh", "console")
NOT_RUN = "not run: "
SHORT = ("README.md", "docs/guide.md")
NO_PROSE = re.compile(r"^```.*?^```|<!--.*?-->|^[|#][^\n]*", re.MULTILINE | re.DOTALL)
NEW_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n\s*\n|\n\s*(?:\*|\d+\.) ")


def commands() -> Iterator[str]:
    """Yields the commands of all pages: lines of shell blocks, and code within sentences."""
    for page in PAGES:
        text = page.read_text()
        for language, block in BLOCK.findall(text):
            if language in SHELL:
                joined = re.sub(r"\\\n\s*", " ", block)
                lines = (line.split("  #")[0].strip() for line in joined.splitlines())
                yield from (line for line in lines if line.split(" ")[0] in LEAD)
        yield from (" ".join(command.split()) for command in INLINE.findall(text))


COMMANDS = sorted(set(commands()))


def table() -> dict[str, str]:
    lines = [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]
    return {prefix.strip(): how.strip() for prefix, how in (line.split("|", 1) for line in lines)}


def row_of(command: str) -> str | None:
    """Returns the longest beginning of a command that the table holds."""
    matching = [prefix for prefix in table() if command.startswith(prefix)]
    return max(matching, key=len, default=None)


def test_every_command_is_run_by_a_test_or_named_as_not_run():
    assert [command for command in COMMANDS if row_of(command) is None] == []
    assert set(table()) - {row_of(command) for command in COMMANDS} == set()
    missing = [
        how for how in table().values() if not how.startswith(NOT_RUN) and not (ROOT / how).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("page", SHORT)
def test_a_sentence_has_less_than_30_words(page: str):
    prose = NO_PROSE.sub("\n\n", (ROOT / page).read_text())
    prose = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", prose))
    long = [each for each in NEW_SENTENCE.split(prose) if len(each.split()) >= 30]
    assert long == []


def make(*words: str) -> "subprocess.CompletedProcess[str]":
    """Returns what make would run."""
    return subprocess.run(["make", "-n", *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.full
def test_every_make_command_names_a_target():
    for command in COMMANDS:
        if command.startswith("make ") and command != "make VERB":
            done = make(*shlex.split(command.split(" && ")[0])[1:])
            assert done.returncode == 0, f"{command}: {done.stderr}"


@pytest.mark.parametrize(
    ("target", "setting", "readers"),
    [
        ("verify", "PRESET=wind", "repro gate promote rollback retrain grids"),
        ("retrain", "MODELS=allo", "repro gate promote results"),
        ("gate", "JOBS=2", "repro back retrain"),
        ("promote", "MODEL=allo", "profile compare rollback"),
    ],
)
def test_make_refuses_a_variable_that_the_target_does_not_read(
    target: str, setting: str, readers: str
):
    done = make(target, setting)
    assert done.returncode == 2
    name = setting.partition("=")[0]
    assert f"make {target} has no {name}; these have: {readers}." in done.stderr


def test_the_menu_has_every_target_in_a_group_and_fits_a_terminal():
    menu = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    rules = "".join((ROOT / name).read_text() for name in ("Makefile", "development.mk"))
    targets = re.findall(r"^([a-z-]+):.*##", rules, re.M)
    assert sorted(line.split()[1] for line in menu if line.startswith("  make ")) == sorted(targets)
    assert max(map(len, menu)) <= 100


def test_make_gate_judges_the_preset_that_is_named():
    assert "pipeline gate --preset wind allo" in make("gate", "PRESET=wind", "MODELS=allo").stdout


def test_every_dvc_command_is_one_of_dvc():
    for command in COMMANDS:
        if command.startswith("dvc ") and "..." not in command:
            parse_args(shlex.split(command.split(" && ")[0])[1:])


@pytest.mark.full
def test_the_site_builds_without_warnings(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"NO_COLOR": "1", "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    page = (tmp_path / "learners/allo.html").read_text()
    assert "train.batch_size" in page
    assert "cosine_mean" in page
    assert "quatrain.fit" in (tmp_path / "api.html").read_text()
