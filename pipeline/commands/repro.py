"""params.yaml, preset -> `dvc repro` where it harms nothing, then the gate: what `make repro` does."""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from ruamel.yaml import YAML

from pipeline.commands.gate import gate, known_models
from pipeline.dvc import lock_order, rwlock
from pipeline.judging import verdicts
from pipeline.runtime.errors import ConfigError
from pipeline.runtime.processes import ParallelCommands, wait_for_child
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.params_file import read_params, read_raw
from pipeline.tracking import backfill, model_aliases
from pipeline.tracking.shipper import resolve_uri
from pipeline.tracking.store import reason_of
from quatrain.registry import MODELS

DVC = (sys.executable, "-m", "dvc")
MADE = {"data", "models", "reports", ".state", ".mlflow", "dvc.lock", "params.yaml"}
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
            if (
                path.is_file()
                and "__pycache__" not in path.parts
                and str(path.relative_to(work)) not in names
            ):
                path.unlink()
    with (work / "params.yaml").open("w") as file:
        YAML().dump(overlaid, file)
    cache = (
        f'[core]\n    no_scm = true\n[cache]\n    dir = "{root.absolute() / ".dvc" / "cache"}"\n'
    )
    write_durably(work / ".dvc" / "config.local", cache.encode())
    return work


def listed(root: Path) -> set[str]:
    """Files that are committed, or that `git add .` would add."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ConfigError(
            "a preset runs in a copy of what git lists; run from a git checkout, with git"
        ) from None
    return {name for name in done.stdout.decode().split("\0") if name}


def copy_if_changed(source: Path, target: Path) -> None:
    """Make `target` what `source` is, or is not any more; an equal file keeps its time, so DVC need not hash it."""
    if not source.is_file():
        target.unlink(missing_ok=True)
    elif not target.is_file() or source.read_bytes() != target.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def dvc(root: Path, work: Path, *arguments: str) -> int:
    """The exit code of dvc in a workspace."""
    return wait_for_child(
        subprocess.Popen([*DVC, *arguments], cwd=work, env=environment(root, work))
    )


def environment(root: Path, work: Path) -> dict[str, str]:
    """For dvc and what it starts: this interpreter's `python` first, the workspace's code, the checkout's tracking."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    uri = resolve_uri(root.absolute())
    return os.environ | {
        "PATH": path,
        "MLFLOW_TRACKING_URI": uri,
        "PYTHONPATH": str(work.absolute() / "src"),
    }


def run(root: Path, preset: str, models: Sequence[str], jobs: int = 1) -> int:
    """The exit code of `dvc repro`, or else of the gate; trains so many models at the same time.

    Raises:
        ConfigError: params.yaml or the preset cannot be used.
    """
    read_params(root, preset)
    work = prepare_workspace(root, preset)
    rwlock.repair(work)
    everything = set(models) == set(MODELS)
    targets = [] if everything else [f"evaluate@{model}" for model in models]
    with lock_order.in_order(work) if jobs > 1 else nullcontext():
        code = train_together(root, work, models, jobs) if jobs > 1 else 0
        code = code or dvc(root, work, "repro", *targets)
    if code:
        print(
            "repro: dvc stopped before the end; the line above that ends with [exit N] says why",
            file=sys.stderr,
        )
        return code
    return closing(root, work, models, everything)


def train_together(root: Path, work: Path, models: Sequence[str], jobs: int) -> int:
    """Collect, then train so many models at the same time; the exit code of the first that failed, or 0.

    Only `--single-item` keeps the others' outs unlocked, and only `--wait-for-lock` before the verb lets each
    wait its turn to write dvc.lock.
    """
    if code := dvc(root, work, "repro", *(f"collect@{model}" for model in models)):
        return code
    stages = [f"train@{model}" for model in models]
    commands = {
        stage: [*DVC, "--wait-for-lock", "repro", "--single-item", stage] for stage in stages
    }
    codes = ParallelCommands(jobs).run(commands, work, environment(root, work))
    failed = [stage for stage in stages if codes[stage]]
    if failed:
        print(
            f"repro: {', '.join(failed)} did not end well; the others did what they could",
            file=sys.stderr,
        )
    return codes[failed[0]] if failed else 0


def judge_again(root: Path, preset: str, models: Sequence[str], crowned: bool = True) -> int:
    """Evaluate and report once more, against baselines that have just moved; collects and trains nothing."""
    work = prepare_workspace(root, preset)
    rwlock.repair(work)
    everything = all(verdicts.files(work, model).verdict.exists() for model in MODELS)
    for stage in (*(f"evaluate@{model}" for model in models), *(("report",) if everything else ())):
        if code := dvc(root, work, "repro", "--single-item", stage):
            print(
                f"repro: not judged again: {stage} did not end well; {verdicts.again(preset)}",
                file=sys.stderr,
            )
            return code
    return closing(root, work, models, everything, crowned)


def closing(
    root: Path, work: Path, models: Sequence[str], everything: bool, crowned: bool = True
) -> int:
    """The gate's table and exit code, and where to look; a restored result gets its run before."""
    if backfill.catch_up(work, models, environment(root, work)):
        print(
            "repro: some runs are not recorded yet; the line above says why, `make sync` tries again",
            file=sys.stderr,
        )
    print()
    code = gate(work, models)
    if crowned:
        crown(root, work, models)
    reports = work.relative_to(root) / "reports"
    page = (
        f"report   {reports / 'report.md'}"
        if everything
        else f"scores, plots   {reports}/{{{','.join(models)}}}"
    )
    print(f"\n{page}\nruns     `make ui`, then http://127.0.0.1:5000", flush=True)
    return code


def crown(root: Path, work: Path, models: Sequence[str]) -> None:
    """Let the aliases of registered models follow."""
    try:
        for line in model_aliases.crown(
            root, model_aliases.wanted(root, work, read_params(work).preset, models)
        ):
            print(line)
    except Exception as error:  # of whatever kind: the runs and the verdict stand
        why = reason_of(error, resolve_uri(root))
        print(
            f"warning: registry: its aliases are not set yet ({why}); `make sync` does it",
            file=sys.stderr,
        )


def count(text: str) -> int:
    """A number of jobs."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of jobs; pass 1 or more")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.commands.repro", description=__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named"
    )
    parser.add_argument("--preset", default="default", help="a file of presets/, without .yaml")
    parser.add_argument(
        "--jobs", type=count, default=1, metavar="N", help="train so many models at a time (1)"
    )
    chosen = parser.parse_args(argv)
    try:
        return run(Path.cwd(), chosen.preset, known_models(chosen.models), chosen.jobs)
    except ConfigError as error:
        print(f"repro: {error} [exit 2]", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("repro: interrupted; the next run continues [exit 130]", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
