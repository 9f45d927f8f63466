"""git in a folder, and what a folder holds."""

import subprocess
from pathlib import Path


def git(folder: Path, *arguments: str) -> str:
    identity = [
        "-c",
        "user.name=test",
        "-c",
        "user.email=test@example.org",
        "-c",
        "init.defaultBranch=main",
    ]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def contents(root: Path) -> dict[str, bytes]:
    """Every file but those below .git and .presets."""
    files = (path for path in root.rglob("*") if path.is_file())
    names = {str(path.relative_to(root)): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not name.startswith((".git/", ".presets/"))
    }
