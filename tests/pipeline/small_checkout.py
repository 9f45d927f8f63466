"""git in a folder, clones, commands as in a shell of their own, and what a folder holds."""

import os
import subprocess
import sys
from pathlib import Path

from pipeline.dvc.workspace import copy_if_changed, files_of_git
from tests.conftest import ROOT

IDENTITY = {"user.name": "test", "user.email": "test@example.org"}
OTHERS = ("AWS_", "DVC_", "JAX_DISABLE", "MLFLOW_", "PYTEST_", "PYTHONPATH", "SSH_")
"""Beginnings of variables that a command must not inherit."""


def git(folder: Path, *arguments: str) -> str:
    settings = IDENTITY | {"init.defaultBranch": "main"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    done = subprocess.run(
        ["git", *options, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def clone(root: Path, source: Path = ROOT) -> Path:
    """A clone of a repository; of this one with the edits that are not committed."""
    git(root.parent, "clone", "-q", "--no-hardlinks", str(source), str(root))
    for name, value in IDENTITY.items():
        git(root, "config", name, value)
    for name in sorted(files_of_git(ROOT)) if source == ROOT else ():
        copy_if_changed(ROOT / name, root / name)
    return root


def start(root: Path, *command: str, **variables: str) -> "subprocess.Popen[str]":
    """A program of this environment with the code in `root`, in a process group of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OTHERS)}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}",
        "PYTHONUNBUFFERED": "1",
        "DVC_NO_ANALYTICS": "1",
    }
    return subprocess.Popen(
        command,
        cwd=root,
        env=environment | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def call(root: Path, *command: str, code: int = 0, **variables: str) -> str:
    """What a program says that ends with this exit code."""
    with start(root, *command, **variables) as process:
        said = process.communicate()[0]
    assert process.returncode == code, said
    assert "Traceback" not in said, said
    return said


def contents(root: Path) -> dict[str, bytes]:
    """Every file but those below .git and .presets."""
    files = (path for path in root.rglob("*") if path.is_file())
    names = {str(path.relative_to(root)): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not name.startswith((".git/", ".presets/"))
    }
