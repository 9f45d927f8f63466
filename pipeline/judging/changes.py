"""a run and the baseline that judges it -> what made each of them, and what of that differs."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline.judging.machine import KEYS, describe, machine_of
from pipeline.runtime import git
from pipeline.runtime.errors import CommandFailed
from pipeline.storage.params_file import checkout_of
from pipeline.storage.run_key import params_of
from quatrain.differences import differing
from quatrain.judgement import Judgement
from quatrain.params import Params

# Folders of the code and data that shape scores; params are compared by their values.
SOURCES = ("src", "pipeline", "inputs")
# Commits, and edited files, that are listed.
MOST_LISTED = 5
# What provenance has beside the versions of libraries.
WHO_AND_WHEN = {"by", "commit", "date", "run_key", "why"}
NO_VERSIONS = WHO_AND_WHEN | {"seeds", "code", "data", "params", "recording", *KEYS}
# Beginning of the line of the code.
CODE = "code: "
UNRECORDED = "params, code, data, versions: unknown, for this baseline does not record them"
UNEXPLAINED = (
    "no commit or edit here explains it: inputs that git ignores, a user's environment, "
    "or edits that were never committed"
)
SAME = "nothing that is recorded; params, code, data, versions and machine are the same"


def provenance_of(
    root: Path, model: str, params: Params, info: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns what a baseline records of the run that made its scores; info: as `FreshScores`."""
    return {
        "run_key": info["run_key"],
        "commit": git.revision(checkout_of(root), git.CODE),
        "seeds": getattr(params, model).seeds,
        "code": info["code"],
        "data": info["data"],
        "params": params_of(params, model),
        **info["settings"],
    }


def what_changed(work: Path, judgement: Judgement, params: Params) -> list[str]:
    """Returns what differs between the run of the baseline and that of the scores, a line each; no
    line where one of them is not known.

    work: the folder of the learner. params: those of the scores.
    """
    old = judgement.provenance
    if not old or not judgement.learner:
        return []
    new = provenance_of(work, judgement.model, params, judgement.learner)
    here = machine_of(new)
    machines = [describe(each) for each in (here | machine_of(old), here)]
    machine = [f"machine: {' -> '.join(machines)}"] if machines[0] != machines[1] else []
    if "params" not in old:
        return [*machine, UNRECORDED]
    return [*_differences(checkout_of(work), old, new), *machine] or [SAME]


def _differences(root: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yields params, code, data and versions that differ."""
    for key, (before, after) in differing(old["params"], new["params"]).items():
        yield f"{key}: {before} -> {after}"
    if old["code"] != new["code"]:
        yield f"{CODE}{_code_since(root, str(old['commit']).partition('+')[0])}"
    if old["data"] != new["data"]:
        yield f"data: another dataset, {old['data'][:12]} -> {new['data'][:12]}"
    for name, (before, after) in differing(versions_of(old), versions_of(new)).items():
        yield f"{name}: {before} -> {after}"


def versions_of(provenance: Mapping[str, Any]) -> dict[str, str]:
    """Returns the versions, and the flags if variables of the user set some."""
    return {name: provenance[name] for name in sorted(provenance.keys() - NO_VERSIONS)}


def _code_since(root: Path, commit: str) -> str:
    """Returns the commits after one that touch code, and the files that are not committed."""
    try:
        log = git.output(root, "log", "--format=%h %s", f"{commit}..HEAD", "--", *SOURCES)
        status = git.output(root, "status", "--porcelain", "--untracked-files=all", "--", *SOURCES)
    except CommandFailed:
        return f"changed after commit {commit}, which is not in this clone"
    edited = [f"{line[3:]} (not committed)" for line in status.decode().splitlines()]
    commits = log.decode(errors="replace").splitlines()
    return "; ".join([*_shortened(edited), *_shortened(commits)]) or UNEXPLAINED


def _shortened(lines: list[str]) -> list[str]:
    rest = len(lines) - MOST_LISTED
    return lines if rest <= 0 else [*lines[:MOST_LISTED], f"and {rest} more"]
