"""Install the pinned torch into the environment that runs this: `install_torch.py auto|URL|''`.

PyPI's wheels for Linux are CUDA's build: gigabytes that a machine without an NVIDIA driver cannot
use. So `auto` takes PyTorch's index of CPU builds there, if it answers, and otherwise pip's own
index; a URL is taken as it is, and '' is pip's own index.
"""

import platform
import shutil
import subprocess
import sys
import urllib.request
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PINNED = Path(__file__).with_name("torch.txt")
CPU = "https://download.pytorch.org/whl/cpu"
RECORD = Path(sys.prefix, ".torch-index")
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")
SECONDS = 5


def chosen(asked: str) -> str:
    """Returns the index to install from; empty for pip's own."""
    if asked != "auto":
        return asked
    if platform.system() != "Linux" or has_driver():
        return ""
    if answers(CPU):
        return CPU
    print(
        f"setup: {CPU} does not answer: torch comes from pip's own index, perhaps as CUDA's build"
        " (4 GB more)",
        flush=True,
    )
    return ""


def has_driver() -> bool:
    """Tells whether an NVIDIA driver is installed."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def answers(index: str) -> bool:
    """Tells whether this index lists torch."""
    try:
        with urllib.request.urlopen(f"{index}/torch/", timeout=SECONDS):
            return True
    except OSError:
        return False


def installed() -> str | None:
    """Returns torch's version, without the name of its build."""
    try:
        return version("torch").partition("+")[0]
    except PackageNotFoundError:
        return None


def main(asked: str) -> None:
    found = installed()
    current = found is not None and f"torch=={found}" in PINNED.read_text().splitlines()
    before = RECORD.read_text() if RECORD.exists() else "auto"
    if current and asked in ("auto", before):
        return
    if found is not None:
        subprocess.run((*PIP, "uninstall", "--yes", "torch"), check=True)
    index = chosen(asked)
    source = ("--index-url", index) if index else ()
    subprocess.run((*PIP, "install", *source, "--requirement", str(PINNED)), check=True)
    RECORD.write_text(index)


if __name__ == "__main__":
    main(sys.argv[1])
