"""params.yaml, preset -> `dvc repro` where it harms nothing, then the gate: what `make repro` does."""

import argparse
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml import YAML

from pipeline.durable import write_durably
from pipeline.gate import gate, known_models
from pipeline.params import ConfigError, read_params, read_raw
from pipeline.tracking import resolve_uri
from quatrain.registry import MODELS

MADE = {"data", "models", "reports", ".state", "dvc.lock", "params.yaml"}
"""What a preset's workspace makes itself; everything else in it, but for DVC's own files, is a copy."""


def workspace_of(root: Path, preset: str) -> Path:
    """Where a preset runs: the default one here, any other in a copy that touches no output of the default run."""
    return root if preset == "default" else root / ".presets" / preset


def prepare_workspace(root: Path, preset: str) -> Path:
    """Bring the preset's copy up to date: the files that git knows or would add, and the overlaid params.yaml.

    The copy has its own dvc.lock, outs and .state, and shares the cache; a run that was killed in it is continued by
    the next.

    Raises:
        ConfigError: there is no such preset, or no git to list the files.
    """
    work = workspace_of(root, preset)
    if work == root:
        return root
    overlaid = read_raw(root, preset)
    names = {name for name in listed(root) if Path(name).parts[0] not in MADE}
    for name in sorted(names):
        copy_if_changed(root / name, work / name)
    for folder in sorted(path for path in work.iterdir() if path.name not in {*MADE, ".dvc"}):
        for path in [folder, *folder.rglob("*")]:
            if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(work)) not in names:
                path.unlink()
    with (work / "params.yaml").open("w") as file:
        YAML().dump(overlaid, file)
    cache = f'[core]\n    no_scm = true\n[cache]\n    dir = "{root.absolute() / ".dvc" / "cache"}"\n'
    write_durably(work / ".dvc" / "config.local", cache.encode())
    return work


def listed(root: Path) -> set[str]:
    """Files that are committed, or that `git add .` would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError("a preset runs in a copy of what git lists; run from a git checkout, with git") from None
    return {name for name in done.stdout.decode().split("\0") if name}


def copy_if_changed(source: Path, target: Path) -> None:
    """Make `target` what `source` is, or is not any more; an equal file keeps its time, so DVC need not hash it."""
    if not source.is_file():
        target.unlink(missing_ok=True)
    elif not target.is_file() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def repair_lock(work: Path) -> None:
    """Remove a half-written .dvc/tmp/rwlock, which would block each later run, unless a living dvc is writing it."""
    path = work / ".dvc" / "tmp" / "rwlock"
    if not path.exists():
        return
    with path.with_name("rwlock.lock").open("a") as guard:
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            json.loads(path.read_text()).items()
        except (ValueError, AttributeError):
            print("repro: removed .dvc/tmp/rwlock, which a killed run left half-written", file=sys.stderr)
            path.unlink()


def dvc(root: Path, work: Path, *arguments: str) -> int:
    """The exit code of dvc in a workspace, with this interpreter's `python` first and the checkout's tracking store."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    uri = resolve_uri(root.absolute())
    environment = os.environ | {"PATH": path, "MLFLOW_TRACKING_URI": uri, "PYTHONPATH": str(work.absolute() / "src")}
    return patiently(subprocess.Popen([sys.executable, "-m", "dvc", *arguments], cwd=work, env=environment))


def patiently(process: subprocess.Popen) -> int:
    """The exit code of a child that is left to save its work: Ctrl-C reaches it by itself, SIGTERM is passed on."""
    before = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        while True:
            try:
                code = process.wait()
                return code if code >= 0 else 128 - code
            except KeyboardInterrupt:
                continue
    finally:
        signal.signal(signal.SIGTERM, before)


def run(root: Path, preset: str, models: Sequence[str]) -> int:
    """The exit code of `dvc repro`, or else of the gate.

    Raises:
        ConfigError: params.yaml or the preset cannot be used.
    """
    read_params(root, preset)
    work = prepare_workspace(root, preset)
    repair_lock(work)
    everything = set(models) == set(MODELS)
    targets = [] if everything else [f"evaluate@{model}" for model in models]
    if code := dvc(root, work, "repro", *targets):
        print("repro: dvc stopped before the end; the line above that ends with [exit N] says why", file=sys.stderr)
        return code
    return closing(root, work, models, everything)


def judge_again(root: Path, preset: str, models: Sequence[str]) -> int:
    """Evaluate and report once more, against baselines that have just moved; collects and trains nothing."""
    work = prepare_workspace(root, preset)
    everything = set(models) == set(MODELS)
    for stage in (*(f"evaluate@{model}" for model in models), *(("report",) if everything else ())):
        if code := dvc(root, work, "repro", "--single-item", stage):
            return code
    return closing(root, work, models, everything)


def closing(root: Path, work: Path, models: Sequence[str], everything: bool) -> int:
    """The gate's table and exit code, and where to look."""
    print()
    code = gate(work, models)
    reports = work.relative_to(root) / "reports"
    page = f"report   {reports / 'report.md'}" if everything else f"scores, plots   {reports}/{{{','.join(models)}}}"
    print(f"\n{page}\nruns     `make ui`, then http://127.0.0.1:5000", flush=True)
    return code


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.repro", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named")
    parser.add_argument("--preset", default="default", help="a file of presets/, without .yaml")
    chosen = parser.parse_args(argv)
    try:
        return run(Path.cwd(), chosen.preset, known_models(chosen.models))
    except ConfigError as error:
        print(f"repro: {error} [exit 2]", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
