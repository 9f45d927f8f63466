"""a finished run, git -> one line about what it moved, and whether that is normal."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import ValidationError

from pipeline.judging import verdicts
from pipeline.judging.machine import describe, is_same, machine_of
from pipeline.judging.verdicts import SCORES, ModelVerdict
from pipeline.runtime.git import git, has_changes
from pipeline.storage import artifacts

# What a person changes, and what a run writes.
CODE = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")
WRITTEN = ("dvc.lock", "reports")
NAMES_MACHINE = "dvc.lock and report.md name the machine and the bytes of its run"


def moved(root: Path, models: Sequence[str]) -> str | None:
    """Returns what a run of the last commit's code changed in git; None if nothing.

    None, too, if code or params are not those of the commit: then a change is no surprise.
    """
    if not has_changes(root, WRITTEN) or has_changes(root, CODE):
        return None
    results = [verdicts.check(root, model, "default") for model in models]
    shares = [share for result in results for share in moves(root, result)]
    here, there = machines(root, results)
    if not shares:
        return f"the scores are those in git; {NAMES_MACHINE}: normal"
    share, most = max(shares)
    count = sum(len(result.verdict.lines) for result in results)
    text = f"{len(shares)} of {count} scores differ from those in git, at most by {share:.0%} of "
    text += f"what the gate allows ({most}); "
    if is_same(here, there):
        return text + "the machine is of the same type: code, params or versions have changed since"
    normal = "normal on another machine" if share <= 1 else "more than another machine explains"
    return f"{text}{normal}: here {describe(here)}, in git {describe(there)}"


def moves(root: Path, result: ModelVerdict) -> list[tuple[float, str]]:
    """Returns (share of what the gate allows, words) for each judged score that git has another
    value of.
    """
    committed = scores_in_git(root, result.model)
    rows = []
    for comparison in result.comparisons:
        old, new = committed.get(comparison.metric), comparison.new
        if old is None or new is None or old == new:
            continue
        share = abs(new - old) / comparison.allowed if comparison.allowed else float("inf")
        rows.append((share, f"{result.model} {comparison.metric} {old:.6g} -> {new:.6g}"))
    return rows


def scores_in_git(root: Path, model: str) -> Mapping[str, float | None]:
    text = git(root, "show", f"HEAD:./reports/{model}/scores.json")
    try:
        return SCORES.validate_json(text)
    except ValidationError:  # not in git, or damaged there
        return {}


def machines(
    root: Path, results: Sequence[ModelVerdict]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Returns the machine of these runs, and that of the baselines, which is the one in git."""
    here, there = dict[str, str](), dict[str, str]()
    for result in results:
        here |= machine_of(artifacts.load(root / "models" / result.model).info["settings"])
        there |= machine_of(result.baseline.provenance)
    return here, there
