"""A repository whose `pipeline.commands.repro`, `pipeline.commands.promote` and dvc are small
scripts that do what a test asks for.
"""

import shutil
import sys
from pathlib import Path
from subprocess import Popen

import pytest

from pipeline.retraining import outcome, worktree
from pipeline.retraining.outcome import Outcome
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import contents, git, start

REPRO = """
import os, pathlib, shutil, signal, sys, time

def leave(number, _frame):
    pathlib.Path(".state/checkpoint").write_text("of the interrupted one")
    sys.exit(128 + number)

signal.signal(signal.SIGTERM, leave)
night = pathlib.Path(os.environ["NIGHT"])
with (night / "calls").open("a") as file:
    file.write(" ".join(("repro", *sys.argv[1:])) + "\\n")
if (night / "endless").exists():
    (night / "begun").write_text(str(os.getpid()))
    time.sleep(600)
if pathlib.Path(".state/checkpoint").exists():
    (night / "continued").touch()
shutil.copytree(night / "made", ".", dirs_exist_ok=True)
sys.exit(int((night / "exit").read_text()))
"""
PROMOTE = """
import os, pathlib, sys

night = pathlib.Path(os.environ["NIGHT"])
with (night / "calls").open("a") as file:
    file.write(" ".join(("promote", *sys.argv[1:])) + "\\n")
for model in sys.argv[4:]:
    path = pathlib.Path("baselines", model + ".json")
    path.write_text(path.read_text().replace("2026-01-02", (night / "date").read_text()))
"""
DVC = """
import os, pathlib, sys

night = pathlib.Path(os.environ["NIGHT"])
table = "| metric |\\n|---|\\n| of iqn |"
settings = (night / "settings").read_text()
said = {"cache dir": ".dvc/cache", "config --list": settings, "metrics diff --md": table}
line = " ".join(sys.argv[1:])
if line == "checkout --quiet --allow-missing":
    pass
elif line in said:
    print(said[line])
else:
    with (night / "calls").open("a") as file:
        file.write("dvc " + line + "\\n")
sys.exit(1 if sys.argv[1] in (night / "refused").read_text().split() else 0)
"""
MAIN = """
import sys
sys.path[:0] = [{root!r}, {root!r} + "/src"]
from pipeline.commands import retrain
from pipeline.retraining import worktree
worktree.DVC = (sys.executable, "-S", {dvc!r})
sys.exit(retrain.main([]))
"""


class Night:
    """What one retraining will find, and what it left."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder, self.prepared = root, folder, folder / "made"
        shutil.copytree(root, folder / "scored", ignore=shutil.ignore_patterns(".git"))
        self.prepared.mkdir()
        texts = {"exit": "0", "settings": "", "refused": "", "date": "2026-02-03", "dvc.py": DVC}
        for name, text in (texts | {"calls": ""}).items():
            self.set(name, text)
        self.before = self.state()

    def scores(self, model: str, **changed: float) -> None:
        """What the model will reach."""
        Workspace(self.folder / "scored", model).score(**changed)
        for out in ("models", "reports"):
            shutil.copytree(self.folder / "scored" / out, self.prepared / out, dirs_exist_ok=True)

    def preset(self, model: str, **changed: float) -> None:
        """All models hold baselines of preset smoke; one reaches these scores."""
        work = self.prepared / ".presets" / "smoke"
        for name in MODELS:
            Workspace(self.root, name).set_baseline("smoke")
        git(self.root, "commit", "-q", "-a", "-m", "baselines of a preset")
        self.before = self.state()
        ignored = shutil.ignore_patterns(".git", ".presets", ".state")
        shutil.copytree(self.root, work, ignore=ignored)
        for name in MODELS:
            Workspace(work, name).score("smoke", **(changed if name == model else {}))
        params = (work / "params.yaml").read_text()
        (work / "params.yaml").write_text(params.replace("preset: default", "preset: smoke"))

    def lock(self, text: str) -> None:
        """What will stand in dvc.lock."""
        (self.prepared / "dvc.lock").write_text(text)

    def set(self, name: str, text: str = "") -> None:
        (self.folder / name).write_text(text)

    def calls(self, verb: str = "") -> list[str]:
        """How the scripts were called."""
        lines = (self.folder / "calls").read_text().splitlines()
        return [line for line in lines if line.startswith(verb)]

    def state(self) -> tuple[object, ...]:
        """All that a retraining must not change in the checkout."""
        files = {
            name: data
            for name, data in contents(self.root).items()
            if not name.startswith((".state/", ".dvc/c"))
        }
        head = (self.root / ".git" / "HEAD").read_text()
        commit = git(self.root, "rev-parse", "HEAD")
        return files, head, commit, git(self.root, "status", "--porcelain")

    def ended(self) -> Outcome:
        """What is on record of it."""
        return outcome.read(self.root / outcome.FOLDER)

    def proposed(self) -> str:
        """The branch with the result."""
        branch = self.ended().branch
        assert branch is not None
        return branch

    def changed(self) -> list[str]:
        """The files in which that branch differs from main."""
        return git(self.root, "diff", "--name-only", "main", self.proposed()).splitlines()

    def branches(self, folder: Path | None = None) -> list[str]:
        """Those that retrainings made, here or in another repository."""
        places = ("refs/heads/retrain", "refs/heads/retrain-pictures")
        names = git(folder or self.root, "for-each-ref", "--format=%(refname:short)", *places)
        return names.splitlines()

    def start(self) -> "Popen[str]":
        """In a process of its own."""
        code = MAIN.format(root=str(ROOT), dvc=str(self.folder / "dvc.py"))
        return start(self.root, "python", "-c", code, NIGHT=str(self.folder))


def made_night(root: Path, folder: Path, patch: pytest.MonkeyPatch) -> Night:
    """A night in this checkout; what is called in it are the scripts."""
    commands = root / "pipeline" / "commands"
    commands.mkdir(parents=True)
    texts = {"../__init__": "", "__init__": "", "repro": REPRO, "promote": PROMOTE}
    for name, text in texts.items():
        (commands / f"{name}.py").write_text(text)
    ignored = (".presets/", ".state/", "/models/", "/.dvc/cache", "/.dvc/config.local")
    (root / ".gitignore").write_text("\n".join([*ignored, "__pycache__/", ""]))
    plots = root / "reports" / "iqn" / "plots"
    plots.mkdir(parents=True)
    (plots / "curve.png").write_bytes(b"a picture of iqn")
    (root / "reports" / "report.md").write_text("# the report\n")
    git(root, "checkout", "-q", "-B", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "retrainable")

    folder.mkdir()
    patch.setenv("NIGHT", str(folder))
    patch.setattr(worktree, "DVC", (sys.executable, "-S", str(folder / "dvc.py")))
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME", "QUATRAIN_PICTURES_URL"):
        patch.delenv(name, raising=False)
    return Night(root, folder)


def made_remote(night: Night, folder: Path) -> Path:
    """A bare repository, known as origin."""
    git(folder.parent, "init", "-q", "--bare", folder.name)
    git(night.root, "remote", "add", "origin", str(folder))
    return folder
