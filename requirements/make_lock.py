"""*.in -> *.txt: exact versions with hashes, from pip's own dry-run report (`make lock`)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
HEAD = (
    "# Made by `make lock` from {source}; do not edit. torch is installed first, by the Makefile.\n"
)
BESIDE = {"dev": (), "remotes": (), "cluster": (), "kuberay": ("cluster",)}
"""Installed beside lock.txt and these, so with their versions."""
APART = {"moto": (), "peers": (TORCH,)}
"""In environments of their own, with what is installed before: dvc-s3 beside moto keeps pip looking
for ever.
"""

Lines = dict[str, str]
"""Name -> `name==version` and its hash."""


def resolve(*requirements: str, constraints: Lines | None = None) -> Lines:
    """What pip would install for these requirements (or `-r FILE`) into an empty environment."""
    with (
        tempfile.NamedTemporaryFile(suffix=".json") as report,
        tempfile.NamedTemporaryFile("w") as fixed,
    ):
        fixed.writelines(f"{line.split()[0]}\n" for line in (constraints or {}).values())
        fixed.flush()
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
        ]
        subprocess.run(
            [*command, "--constraint", fixed.name, "--report", report.name, *requirements],
            check=True,
        )
        items = json.loads(Path(report.name).read_text())["install"]
    return dict(line_of(item) for item in items)


def line_of(item: dict) -> tuple[str, str]:
    """Name and `name==version --hash=...` of one entry of pip's report."""
    name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return name, f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def write(name: str, lines: Lines) -> None:
    """One lock file, sorted."""
    text = HEAD.format(source=f"{name}.in") + "".join(lines[package] for package in sorted(lines))
    (HERE / f"{name}.txt").write_text(text)
    print(f"requirements/{name}.txt: {len(lines)} packages", flush=True)


def main() -> None:
    runtime = resolve(TORCH, "-r", str(HERE / "lock.in"))
    runtime.pop("torch")
    write("lock", runtime)
    locked = {"lock": runtime}
    for name, others in BESIDE.items():
        installed = {key: line for part in ("lock", *others) for key, line in locked[part].items()}
        found = resolve("-r", str(HERE / f"{name}.in"), constraints=installed)
        locked[name] = {
            package: line for package, line in found.items() if package not in (*installed, "torch")
        }
        write(name, locked[name])
    for name, before in APART.items():
        found = resolve(*before, "-r", str(HERE / f"{name}.in"))
        write(name, {package: line for package, line in found.items() if package != "torch"})


if __name__ == "__main__":
    main()
