"""lock.in, dev.in -> lock.txt, dev.txt: exact versions with hashes, from pip's own dry-run report (`make lock`)."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
TORCH = "torch==2.13.0"
HEAD = "# Made by `make lock` from {source}; do not edit. torch is installed first, by the Makefile.\n"


def resolve(*sources: Path) -> dict[str, str]:
    """Name -> lock line of everything that pip would install for these sources and torch into an empty environment."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--report",
            report.name,
        ]
        subprocess.run([*command, TORCH, *(part for path in sources for part in ("-r", str(path)))], check=True)
        items = json.loads(Path(report.name).read_text())["install"]
    return dict(line_of(item) for item in items)


def line_of(item: dict) -> tuple[str, str]:
    """Name and `name==version --hash=...` of one entry of pip's report."""
    name, version = item["metadata"]["name"].lower().replace("_", "-"), item["metadata"]["version"]
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    return name, f"{name}=={version} \\\n    --hash=sha256:{digest}\n"


def main() -> None:
    runtime = resolve(HERE / "lock.in")
    everything = resolve(HERE / "lock.in", HERE / "dev.in")
    runtime.pop("torch"), everything.pop("torch")
    differing = sorted(name for name in runtime if runtime[name] != everything.get(name))
    if differing:
        sys.exit(f"dev.in changes the version of {', '.join(differing)}; pin them in lock.in, then `make lock` again")
    for target, source, lines in (
        ("lock.txt", "lock.in", runtime),
        ("dev.txt", "dev.in", {name: line for name, line in everything.items() if name not in runtime}),
    ):
        (HERE / target).write_text(HEAD.format(source=source) + "".join(lines[name] for name in sorted(lines)))
        print(f"requirements/{target}: {len(lines)} packages")


if __name__ == "__main__":
    main()
