"""requirements/peers.txt -> a Python interpreter with other libraries in .bench/peers"""

import os
import re
import subprocess
import sys
from pathlib import Path

LOCK = Path("requirements/peers.txt")
TORCH = "torch==2.13.0"
"""Installed first and without a hash, as for the project itself; the others must not bring another
one.
"""
REQUIREMENT = re.compile(r"^([\w.-]+==\S+)(?: *\\\n +--hash=\S+)*", re.MULTILINE)
INSTALL_SECONDS = 1800
NOT_INSTALLED = "{what} is not installed: {why}"


def environment(root: Path) -> Path:
    """Returns the interpreter in .bench/peers; installs it again if the lock changed. Git ignores
    it.

    Raises:
        CalledProcessError, TimeoutExpired, OSError: the environment or PyTorch cannot be installed.
    """
    folder, expected = root / ".bench" / "peers", "\n".join([TORCH, (root / LOCK).read_text()])
    python, done = folder / "bin" / "python", folder / ".installed"
    if done.exists() and done.read_text() == expected:
        return python
    print(
        "installing other libraries into .bench/peers (some minutes, once)",
        file=sys.stderr,
        flush=True,
    )
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / ".gitignore").write_text("*\n")
    called([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    called([*pip, TORCH])
    if install([*pip, "--no-deps", "--require-hashes"], root / LOCK, folder):
        done.write_text(expected)
    return python


def install(pip: list[str], lock: Path, folder: Path) -> bool:
    """Installs everything at once, or one by one if that fails; returns whether all are there."""
    try:
        called([*pip, "-r", str(lock)])
        return True
    except subprocess.SubprocessError as error:
        print(f"{reason(error)}; installing one after the other", file=sys.stderr, flush=True)
    is_complete = True
    for requirement in REQUIREMENT.finditer(lock.read_text()):
        single = folder / "single.txt"
        single.write_text(f"{requirement[0]}\n")
        try:
            called([*pip, "-r", str(single)])
        except subprocess.SubprocessError as error:
            is_complete = False
            message = NOT_INSTALLED.format(what=requirement[1], why=reason(error))
            print(message, file=sys.stderr, flush=True)
    return is_complete


def called(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def variables(root: Path) -> dict[str, str]:
    """Returns the environment variables: our settings and this project's sources."""
    return os.environ | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": f"{root / 'src'}:{root}",
        "PYTHONWARNINGS": "ignore",
    }


def reason(error: Exception) -> str:
    """Returns the last line printed by the failed command."""
    text = (getattr(error, "stderr", None) or str(error)).strip()
    return text.splitlines()[-1] if text else type(error).__name__
