"""pyproject.toml, *.in -> *.txt: exact versions, with the hashes of all their files (`make lock`).

One lock serves every supported Python and platform: uv writes a marker beside what only some need.
Versions stay until `make lock ARGS=--upgrade` or ARGS='--upgrade-package NAME'.
"""

import re
import subprocess
import sys
from itertools import takewhile
from pathlib import Path

HERE = Path(__file__).parent
COMPILE = (
    *("uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11"),
    *("--fork-strategy", "fewest", "--generate-hashes", "--no-annotate"),
    *("--constraint", "requirements/torch.txt", "--no-emit-package", "torch"),
    *("--custom-compile-command", "make lock"),
)
PROJECT = ("pyproject.toml", "--extra")
SOURCES = {
    "lock": (*PROJECT, "pipeline"),
    "dev": ("requirements/dev.in",),
    "remotes": ("requirements/remotes.in",),
    "cluster": (*PROJECT, "scale"),
    "kuberay": ("requirements/kuberay.in",),
    "docs": ("requirements/docs.in",),
    "moto": ("requirements/moto.in",),
    "peers": ("requirements/peers.in",),
}
SOURCES = {name: source for name, source in SOURCES.items() if (HERE / f"{name}.txt").is_file()}
APART = ("moto", "peers")
"""In environments of their own; all others go into one, with one version of each package."""
BEFORE = {"kuberay": ("lock", "cluster")}
"""Always installed before; elsewhere that is lock.txt. A file does not repeat what stands there."""


def packages(name: str) -> list[str]:
    """Returns the names in one lock file."""
    text = (HERE / f"{name}.txt").read_text()
    return re.findall(r"^([\w.-]+)(?:\[[\w,]+\])?==", text, re.MULTILINE)


def write(name: str, *options: str) -> None:
    """Writes one lock file."""
    earlier = () if name in APART else takewhile(lambda other: other != name, SOURCES)
    before = () if name in (*APART, "lock") else BEFORE.get(name, ("lock",))
    beside = (
        *(word for other in earlier for word in ("--constraint", f"requirements/{other}.txt")),
        *(f"--no-emit-package={each}" for other in before for each in packages(other)),
    )
    output = f"--output-file=requirements/{name}.txt"
    command = (*COMPILE, *SOURCES[name], *beside, output, *options)
    subprocess.run(command, check=True, cwd=HERE.parent, stdout=subprocess.DEVNULL)
    print(f"requirements/{name}.txt: {len(packages(name))} packages", flush=True)


if __name__ == "__main__":
    for lock in SOURCES:
        write(lock, *sys.argv[1:])
