"""params.yaml, preset -> `dvc repro` where it harms nothing, then the gate: what `make repro` does."""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from ruamel.yaml import YAML

from pipeline import gate
from pipeline.params import ConfigError, read_params, read_raw
from pipeline.tracking import resolve_uri
from quatrain.registry import MODELS

VERBS = ("collect", "train", "evaluate")


def workspace_of(root: Path, preset: str) -> Path:
    """Where a preset runs: the default one here, any other in a copy, so that it touches no output of the default run."""
    return root if preset == "default" else root / ".presets" / preset


def prepare_workspace(root: Path, preset: str) -> Path:
    """Bring the preset's copy up to date: the files that git knows or would add, and the overlaid params.yaml.

    The copy has its own dvc.lock, outs and .state, and shares the cache; a run that was killed in it is continued by the next.
    """
    work = workspace_of(root, preset)
    if work == root:
        return root
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        capture_output=True,
        check=True,
    )
    names = {name for name in listed.stdout.decode().split("\0") if name and name != "dvc.lock"}
    for name in sorted(names):
        _copy_if_changed(root / name, work / name)
    for folder in ("src", "pipeline", "inputs"):
        for path in (work / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and str(path.relative_to(work)) not in names:
                path.unlink()
    YAML().dump(read_raw(root, preset), work / "params.yaml")
    (work / ".dvc").mkdir(exist_ok=True)
    (work / ".dvc" / "config.local").write_text(
        f"[core]\n    no_scm = true\n[cache]\n    dir = {root / '.dvc' / 'cache'}\n"
    )
    return work


def _copy_if_changed(source: Path, target: Path) -> None:
    if not source.is_file():
        target.unlink(missing_ok=True)
    elif not target.is_file() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def repair_lock(work: Path) -> None:
    """Remove a half-written .dvc/tmp/rwlock, which would block every later run (DVC itself drops entries of dead processes)."""
    path = work / ".dvc" / "tmp" / "rwlock"
    try:
        json.loads(path.read_text() or "{")
    except FileNotFoundError:
        return
    except ValueError:
        print(f"repro: removed the half-written {path.relative_to(work)} of a killed run", file=sys.stderr)
        path.unlink()


def targets(models: list[str]) -> list[str]:
    """Stages of the named models only; none named: everything."""
    return [f"{verb}@{model}" for model in models for verb in VERBS]


def run(root: Path, preset: str, models: list[str]) -> int:
    """The exit code of `dvc repro`, or else of the gate."""
    read_params(root, preset)
    work = prepare_workspace(root, preset)
    repair_lock(work)
    environment = os.environ | {"MLFLOW_TRACKING_URI": resolve_uri(root), "PYTHONPATH": f"{work / 'src'}"}
    dvc = [sys.executable, "-m", "dvc", "repro", *targets(models)]
    code = subprocess.run(dvc, cwd=work, env=environment, check=False).returncode
    if code:
        print("repro: dvc stopped; the line above with [exit N] says why", file=sys.stderr)
        return code
    os.chdir(work)
    code = gate.main(models)
    print(f"\nreport: {(work / 'reports' / 'report.md').relative_to(root)}    runs: make ui")
    return code


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.repro", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named")
    parser.add_argument("--preset", default="default", help="a file of presets/, without .yaml")
    chosen = parser.parse_args(argv)
    unknown = [name for name in chosen.models if name not in MODELS]
    try:
        if unknown:
            raise ConfigError(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
        return run(Path.cwd(), chosen.preset, chosen.models)
    except ConfigError as error:
        print(f"repro: {error} [exit 2]", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
