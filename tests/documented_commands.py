"""The commands that README.md, CONTRIBUTING.md and docs/ show, one by one."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.conftest import ROOT

FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
SHELLS = ("", "bash", "sh", "console")
ASSIGNMENT = re.compile(r"\w+=")
PROGRAMS = frozenset(
    {"curl", "docker", "dvc", "export", "git", "kubectl", "make", "mlflow", "pip", "pre-commit"}
    | {"pytest", "python", "ray", "sbatch", "source", "srun", "torchrun", "umask"}
)


class Shown(NamedTuple):
    """Holds a command as words, and the page that shows it."""

    page: str
    words: tuple[str, ...]

    @property
    def text(self) -> str:
        return shlex.join(self.words)


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def shown() -> list[Shown]:
    """Returns every command of every page."""
    return [
        Shown(str(page.relative_to(ROOT)), words)
        for page in pages()
        for line in lines(page.read_text())
        for words in commands(line)
    ]


def lines(text: str) -> Iterator[str]:
    """Yields the lines of shell blocks, and code within sentences."""
    for language, block in FENCE.findall(text):
        if language in SHELLS:
            yield from block.replace("\\\n", " ").splitlines()
    for code in INLINE.findall(FENCE.sub("", text)):
        line = " ".join(code.split())
        # A name alone, such as `dvc`, runs nothing; `make` prints its menu.
        if " " in line or line == "make":
            yield line


def commands(line: str) -> Iterator[tuple[str, ...]]:
    """Yields the commands of a line that begin with one of PROGRAMS, without variables before."""
    try:
        words = shlex.split(line, comments=True)
    except ValueError:  # an apostrophe: a sentence
        return
    command: list[str] = []
    for word in [*words, ";"]:
        ends = word in ("&&", "||", "|", ";") or word.endswith(";")
        if not ends:
            command.append(word)
            continue
        command += [word.rstrip(";")] if word.endswith(";") and word != ";" else []
        while command and ASSIGNMENT.match(command[0]):
            command.pop(0)
        program = command[0].lstrip("(").removeprefix(".venv/bin/") if command else ""
        if program in PROGRAMS:
            yield (program, *command[1:])
        command = []
