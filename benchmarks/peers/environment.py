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


def interpreter(root: Path) -> tuple[Path, dict[str, str]]:
    """Returns the interpreter in .bench/peers, which git ignores, and its environment variables;
    installs the libraries if the lock changed: together, or if that fails one by one.

    Raises:
        CalledProcessError, TimeoutExpired, OSError: the environment or PyTorch cannot be installed.
    """
    folder, expected = root / ".bench" / "peers", "\n".join([TORCH, (root / LOCK).read_text()])
    python, done = folder / "bin" / "python", folder / ".installed"
    variables = {"PYTHONPATH": f"{root / 'src'}:{root}", "PYTHONWARNINGS": "ignore"}
    result = python, {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", **variables}
    if done.exists() and done.read_text() == expected:
        return result
    warn("installing other libraries into .bench/peers (some minutes, once)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder.parent / ".gitignore").write_text("*\n")
    called([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    called([*pip, TORCH])
    pip += ["--no-deps", "--require-hashes", "-r"]
    try:
        called([*pip, str(root / LOCK)])
    except subprocess.SubprocessError as error:
        warn(f"{reason(error)}; installing one after the other")
        lock = REQUIREMENT.finditer((root / LOCK).read_text())
        each = [installed(pip, requirement, folder / "single.txt") for requirement in lock]
        if not all(each):
            return result
    done.write_text(expected)
    return result


def installed(pip: list[str], requirement: re.Match[str], file: Path) -> bool:
    file.write_text(f"{requirement[0]}\n")
    try:
        called([*pip, str(file)])
    except subprocess.SubprocessError as error:
        warn(NOT_INSTALLED.format(what=requirement[1], why=reason(error)))
        return False
    return True


def called(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def warn(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def reason(error: Exception) -> str:
    """Returns the last line printed by the failed command."""
    text = (getattr(error, "stderr", None) or str(error)).strip()
    return text.splitlines()[-1] if text else type(error).__name__
