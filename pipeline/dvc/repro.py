"""params.yaml, preset -> `dvc repro` in the preset's workspace, then the gate."""

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.dvc.brief import VERBOSE_VARIABLE, VERBS
from pipeline.dvc.workspace import alone, drop_rwlock, environment, prepare_workspace
from pipeline.judging.gate import gate
from pipeline.runtime import console, git
from pipeline.runtime.errors import described
from pipeline.runtime.processes import run_parallel, wait_for_child
from pipeline.storage.params_file import read_params
from pipeline.storage.run_key import code_digest, environment_of
from pipeline.tracking import champions
from pipeline.tracking.run import courier, record_restored
from pipeline.tracking.store import reason_of
from pipeline.tracking.ui import runs_page
from quatrain.errors import DataError, QuatrainError
from quatrain.registry import MODELS
from quatrain.storage import folders

DVC = (sys.executable, "-m", "pipeline.dvc.brief")
# What a commit keeps of a run.
RESULTS = ("params.yaml", "dvc.lock", "reports")

Variables = Mapping[str, str]


def dvc(work: Path, variables: Variables, *arguments: str) -> int:
    return wait_for_child(subprocess.Popen([*DVC, *arguments], cwd=work, env=variables))


def run(
    root: Path, preset: str, models: Sequence[str], jobs: int = 1, verbose: bool = False
) -> int:
    """Runs what is out of date in the preset's workspace, then the gate; returns the exit code of
    the first that failed. Works on `jobs` models at a time.

    verbose: whether DVC prints all that it has to say.

    Raises:
        LockHeld: another process runs this preset.
        KeyboardInterrupt: Ctrl-C ended a stage.
    """
    with alone(root, preset):
        work = prepare_workspace(root, preset)
        drop_rwlock(work)
        with courier(root, work) as delivered:
            variables = environment(root, work) | delivered
            if verbose:
                variables[VERBOSE_VARIABLE] = "1"
            code = rerun(work, variables, models) or reproduce(work, variables, models, jobs)
            if code != 128 + signal.SIGINT and is_report_old(work):
                write_report(work, variables)
        if code == 128 + signal.SIGINT:
            raise KeyboardInterrupt
        if code:
            console.info("repro: dvc stopped before the end; the lines above say why")
            return code
        return finish_run(root, work, models)


def is_all(models: Sequence[str]) -> bool:
    return set(models) == set(MODELS)


def is_report_old(work: Path) -> bool:
    """Returns whether a model was evaluated, or promoted, since the report was written."""
    report = work / "reports" / "report.md"
    scores = [*work.glob("reports/*/scores.json")]
    times = [path.stat().st_mtime for path in (*scores, *work.glob("baselines/*.json"))]
    is_written = report.exists() and report.with_suffix(".html").exists()
    return bool(scores) and not (is_written and report.stat().st_mtime >= max(times))


def write_report(work: Path, variables: Variables) -> None:
    """Writes the report, for which DVC's stage would run all models, or says why it is not written.
    Of models that did not run here, it has what the commit has.
    """
    command = [sys.executable, "-m", "pipeline.report"]
    if wait_for_child(subprocess.Popen(command, cwd=work, env=variables)):
        console.info("warning: the report is not that of these scores; the line above says why")


def rerun(work: Path, variables: Variables, models: Sequence[str]) -> int:
    """Runs all stages of the models whose environment of a user has changed; returns dvc's exit
    code. DVC watches inputs/MODEL, and an environment may import what lies elsewhere.
    """
    for model in models:
        if has_another_environment(work, model):
            console.info(f"repro: the environment of {model} has changed: all its stages run")
            if code := dvc(work, variables, "repro", "--force", f"evaluate@{model}"):
                return code
    return 0


def reproduce(work: Path, variables: Variables, models: Sequence[str], jobs: int) -> int:
    """Runs the stages that are out of date; returns dvc's exit code."""
    if min(jobs, len(models)) > 1 and is_stale(work, variables, models):
        code = run_in_parallel(work, variables, models, jobs)
        if code or not is_all(models):
            return code
        return dvc(work, variables, "repro", "--single-item", "report")
    targets = [] if is_all(models) else [f"evaluate@{model}" for model in models]
    return dvc(work, variables, "repro", *targets)


def has_another_environment(work: Path, model: str) -> bool:
    """Returns whether a learner was trained in a user's environment with other code than now."""
    params = read_params(work)
    if environment_of(getattr(params, model).env):
        with suppress(DataError):  # there is no learner
            learner = folders.verify(work / "models" / model)
            return learner.info.get("code") != code_digest(work, model, params, "train")
    return False


def is_stale(work: Path, variables: Variables, models: Sequence[str]) -> bool:
    """Returns whether any stage of the models is to run: each process of dvc takes a second.

    Unlike a stage it has nothing to save, so that a signal ends this process, too.
    """
    stages = [f"{verb}@{model}" for model in models for verb in VERBS]
    command = [*DVC, "status", "--quiet", *stages]
    status = subprocess.run(command, cwd=work, env=variables, capture_output=True)
    return status.returncode != 0


def run_in_parallel(work: Path, variables: Variables, models: Sequence[str], jobs: int) -> int:
    """Collects, trains and evaluates, `jobs` models at a time; returns the exit code of the first
    that failed, or 0.

    Only `--single-item` leaves the others' outs unlocked, and only `--wait-for-lock` before the
    subcommand makes each wait for its turn to write dvc.lock.
    """
    command = [*DVC, "--wait-for-lock", "repro", "--single-item"]
    commands = {model: [*command, *(f"{verb}@{model}" for verb in VERBS)] for model in models}
    codes = run_parallel(commands, jobs, work, variables)
    if failed := [model for model, code in codes.items() if code]:
        console.info(f"repro: {', '.join(failed)} stopped before the end; the others are done")
        return codes[failed[0]]
    return 0


def finish_run(root: Path, work: Path, models: Sequence[str]) -> int:
    """Records which results were restored, says where the results are, and prints the gate's table;
    returns the gate's exit code.
    """
    print()
    try:
        record_restored(work, models)
    except (QuatrainError, OSError) as error:
        console.info(f"warning: tracking: restored results are not recorded ({described(error)})")
    set_aliases(root, work)
    report = work.relative_to(root) / "reports" / "report.html"
    print(f"report   {report}  (open it in a browser; report.md is its text)")
    print(f"runs     `make ui`, then {runs_page(root)}")
    # A retraining works in a worktree, where .git is a file.
    if work == root and (root / ".git").is_dir() and (changed := changed_results(root)):
        print(f"commit   git add {' '.join(changed)}  (`make back` drops all but baselines)")
    print(flush=True)
    return gate(work, work, models, read_params(work))


def changed_results(root: Path) -> list[str]:
    """Returns params, results and baselines that differ from the last commit, if there is one."""
    return [
        name
        for name in (*RESULTS, "baselines")
        if git.has_changes(root, [name], untracked="normal")
    ]


def set_aliases(root: Path, work: Path) -> None:
    """Updates the aliases of registered models; a failure is only a warning, because runs and
    verdict are stored.
    """
    try:
        for alias in champions.set_champions(root, work, read_params(work).preset):
            if alias.is_set:
                print(alias.text)
            else:
                console.info(f"warning: registry: {alias.text}")
    except Exception as error:
        console.info(
            "warning: registry: its aliases are not set yet "
            f"({reason_of(error)}); `make sync` does it"
        )
