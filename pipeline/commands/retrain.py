"""a commit -> fetched, run anew, judged: what passed and is new becomes a branch to merge, what is broken a report."""

import argparse
import datetime
import os
import re
import shutil
import sys
from pathlib import Path
from typing import NamedTuple

from pipeline.commands import repro
from pipeline.judging import verdicts
from pipeline.retraining import body, outcome, worktree
from pipeline.retraining.body import Origin
from pipeline.retraining.outcome import Ended
from pipeline.retraining.proposal import Target, changed, improved, propose, tell
from pipeline.retraining.worktree import Copy
from pipeline.runtime.command import DISK_EXIT_CODE, run_guarded
from pipeline.runtime.errors import ArtifactError, CommandFailed, ConfigError, exit_code_of
from pipeline.runtime.processes import PATIENCE_SECONDS, CommandSequence
from pipeline.storage.params_file import read_params
from quatrain.registry import MODELS

BROKEN = 4
REPORT = outcome.FOLDER / "report"


class Wanted(NamedTuple):
    """What the command line asks for."""

    preset: str
    seed: int | None
    jobs: int | None
    push: bool
    pictures_url: str


def retrain(root: Path, wanted: Wanted, commands: CommandSequence) -> Ended:
    """Everything, in a copy of the checkout: nothing here can leave the checkout other than it was.

    Raises:
        ConfigError: files are not committed, or params, preset or options cannot be used.
        CommandFailed: a command that has to work did not.
        Interrupted: a signal came; the copy stays for the next one to continue.
    """
    commit = worktree.clean_commit(commands, root)
    read_params(root, wanted.preset)
    remote = fetch_branches(commands, root, wanted.push)
    copy = worktree.prepare(commands, root, commit)
    worktree.keep_journals(root, repro.workspace_of(copy.path, wanted.preset))
    target = Target(remote if wanted.push else None, fetch_outs(copy), wanted.pictures_url)
    origin = choose_seed(copy, commit, wanted)
    jobs = () if wanted.jobs is None else ("--jobs", str(wanted.jobs))
    code = copy.python("pipeline.commands.repro", "--preset", wanted.preset, *jobs)
    if code not in (0, BROKEN):
        raise CommandFailed(
            "pipeline.commands.repro stopped before the gate; the log says why", code
        )
    ended = conclude(copy, target, origin, passed=code == 0)
    worktree.remove(commands, root, copy.path)
    return ended


def fetch_branches(commands: CommandSequence, root: Path, needed: bool) -> str | None:
    """Bring the remote's branches up to date; its name, if there is one.

    Raises:
        ConfigError: there is none, and it is needed.
        CommandFailed: it does not answer, and it is needed.
    """
    remote = worktree.git_remote(commands, root)
    if remote is None:
        if needed:
            raise ConfigError("--push needs a git remote; `git remote add origin URL` names one")
        return None
    try:
        worktree.git(commands, root, "fetch", "--quiet", remote)
    except CommandFailed as error:
        if needed:
            raise
        tell(f"goes on without {remote}: {error}")
    if count := worktree.behind(commands, root):
        tell(f"the upstream branch is ahead by {count}; `git pull` first to retrain that")
    return remote


def fetch_outs(copy: Copy) -> bool:
    """Bring outs and run cache from the DVC remote, and put the outs in place; whether there is a remote.

    A stage whose outs are in place is left alone; from the run cache of another machine DVC cannot restore it if one
    of its outs is kept in git.
    """
    remote = worktree.has_dvc_remote(copy)
    if not remote:
        tell("no default DVC remote is set; what the local cache lacks is computed")
    elif copy.commands.call([*worktree.DVC, "fetch", "--quiet", "--run-cache"], copy.path):
        tell("the DVC remote did not give everything; what is missing is computed")
    copy.commands.succeeds([*worktree.DVC, "checkout", "--quiet", "--allow-missing"], copy.path)
    return remote


def choose_seed(copy: Copy, commit: str, wanted: Wanted) -> Origin:
    """Write the seed that is asked for where params.yaml has its own; comments stay."""
    params = copy.path / "params.yaml"
    old = read_params(copy.path).seed
    if wanted.seed is not None:
        params.write_text(
            re.sub(r"(?m)^seed:[ ]*\d+", f"seed: {wanted.seed}", params.read_text(), count=1)
        )
    seed = read_params(copy.path, wanted.preset).seed
    return Origin(commit, wanted.preset, seed, wanted.seed not in (None, old))


def conclude(copy: Copy, target: Target, origin: Origin, passed: bool) -> Ended:
    """What the gate's answer means: a report of failure, nothing, or a proposal."""
    work = repro.workspace_of(copy.path, origin.preset)
    judged = [verdicts.check(work, model, origin.preset) for model in MODELS]
    kept = keep_report(copy.root, work)
    if not passed:
        return Ended(
            "broken", BROKEN, body.broken(origin, judged, str(kept.relative_to(copy.root)))
        )
    better = improved(judged)
    if not better.moved and not changed(copy):
        return Ended("unchanged", 0, body.unchanged(origin))
    branch, told = propose(copy, target, origin, judged, better)
    return Ended("proposed", 0, told, branch)


def keep_report(root: Path, work: Path) -> Path:
    """Bring the reports out of the copy, in place of those of the last retraining."""
    kept = root / REPORT
    shutil.rmtree(kept, ignore_errors=True)
    shutil.copytree(work / "reports", kept)
    return kept


def seed_of(text: str) -> int:
    """`new` is today's date: an interrupted retraining is continued, and tomorrow's is another one."""
    if text == "new":
        return int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no seed; pass `new` or a whole number below 2**32"
        )
    return int(text)


def parsed(argv: list[str] | None) -> Wanted:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.commands.retrain", description=__doc__
    )
    parser.add_argument("--preset", default="default", help="a file of presets/, without .yaml")
    parser.add_argument(
        "--seed",
        type=seed_of,
        metavar="N",
        help="in place of that of params.yaml; `new`: today's date",
    )
    parser.add_argument(
        "--jobs", type=repro.count, metavar="N", help="train so many models at a time"
    )
    parser.add_argument(
        "--push", action="store_true", help="send branches and outs to the git and DVC remotes"
    )
    parser.add_argument(
        "--pictures-url",
        default=os.environ.get("QUATRAIN_PICTURES_URL", ""),
        metavar="URL",
        help="URL/BRANCH/FILE shows a file of a pushed branch (or QUATRAIN_PICTURES_URL)",
    )
    chosen = parser.parse_args(argv)
    if chosen.preset != "default" and chosen.seed is not None:
        parser.error(
            "--seed goes with the default preset: it is written into params.yaml; others set it in presets/"
        )
    return Wanted(chosen.preset, chosen.seed, chosen.jobs, chosen.push, chosen.pictures_url)


def run(root: Path, wanted: Wanted, patience_seconds: float = PATIENCE_SECONDS) -> int:
    """Retrain, and record how it ended.

    Raises:
        ConfigError, CommandFailed, Interrupted: as of `retrain`.
        LockHeld: another one is at work.
    """
    folder = root / outcome.FOLDER
    with CommandSequence(folder / "lock", "retraining", patience_seconds) as commands:
        outcome.forget(folder)
        try:
            ended = retrain(root, wanted, commands)
        except (CommandFailed, ConfigError, ArtifactError, OSError) as error:
            code = exit_code_of(error) or DISK_EXIT_CODE
            outcome.write(folder, outcome.stopped(str(error), code))
            raise
        outcome.write(folder, ended)
    if ended.kind == "unchanged":
        tell("passed, and nothing changed; there is nothing to propose")
    if ended.kind == "broken":
        why = (
            f"the gate is broken and nothing was promoted; {REPORT / 'report.md'} shows the scores"
        )
        print(f"retrain: {why} [exit {BROKEN}]", file=sys.stderr)
    return ended.code


def main(argv: list[str] | None = None) -> int:
    wanted = parsed(argv)
    return run_guarded("retrain", lambda: run(Path.cwd(), wanted))


if __name__ == "__main__":
    sys.exit(main())
