"""Other libraries' advantages, in an environment of their own: made on demand in .bench/peers, never a part of ours."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Times

FOLDER = ".bench"
SCRIPT = "benchmarks.peers.gae"
TORCH = "torch==2.13.0"
PACKAGES = (
    *("torchrl==0.14.1", "tensordict==0.15.3", "stable-baselines3==2.9.2", "gymnasium==1.4.0"),
    *("numpy==2.4.6", "scipy==1.17.1", "jaxtyping", "wadler-lindig", "cloudpickle", "packaging", "pyvers"),
    *("importlib_metadata", "zipp", "orjson", "farama-notifications", "pandas", "python-dateutil", "six", "tzdata"),
)
"""Without what they would bring along: another torch, above all."""
MISSING = "other libraries are not compared: {why}"
INSTALL_SECONDS = 1800
RUN_SECONDS = 1800

Found = dict[str, dict[str, Times]]


def times(root: Path, rounds: int, shapes: tuple[str, ...] = ()) -> tuple[Found, list[str]]:
    """Per shape and library the times, none where they cannot be had; and what to say about it."""
    try:
        python = installed(root / FOLDER)
        ran = subprocess.run(
            [str(python), "-m", SCRIPT, str(rounds), str(torch.get_num_threads()), *shapes],
            cwd=root, env=environment(root), capture_output=True, text=True, timeout=RUN_SECONDS, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        return {}, [MISSING.format(why=reason(error))]
    each = json.loads(ran.stdout)
    found = {shape: {side: Times(np.array(seconds)) for side, seconds in of.items()} for shape, of in each.items()}
    return found, [f"other libraries: {', '.join(PACKAGES[:3])}, in a process of their own, in turn with ours there"]


def installed(folder: Path) -> Path:
    """The interpreter of the environment, which is made if it is not there; git does not see it."""
    python, done = folder / "peers" / "bin" / "python", folder / "peers" / ".installed"
    if done.exists() and done.read_text() == wanted():
        return python
    folder.mkdir(exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    print("installing other libraries into .bench/peers (some minutes, once)", file=sys.stderr)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder / "peers")],
        [*pip, TORCH],
        [*pip, "--no-deps", *PACKAGES],
    ):
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    done.write_text(wanted())
    return python


def wanted() -> str:
    return "\n".join([TORCH, *PACKAGES])


def environment(root: Path) -> dict[str, str]:
    """The same settings as ours, and this project's sources."""
    return os.environ | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "PYTHONPATH": f"{root / 'src'}:{root}",
        "PYTHONWARNINGS": "ignore",
    }


def reason(error: Exception) -> str:
    """The last line of what the failed command said."""
    said = (getattr(error, "stderr", None) or str(error)).strip()
    return said.splitlines()[-1] if said else type(error).__name__
