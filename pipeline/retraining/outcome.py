"""judgements of a retraining -> its outcome: exit code, branch, and the title and body of a pull
request or an issue.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.judging import render
from pipeline.runtime.console import redact
from pipeline.runtime.errors import BaselineBroken
from quatrain.baselines import NOTHING
from quatrain.judgement import Judgement
from quatrain.storage.atomic_write import write_together

FOLDER = Path(".state", "retrain")
OUTCOME = "outcome.json"
BODY = "body.md"
REPORTS = ("report.html", "report.md")
# Folder of comparisons, and the name of a model's.
COMPARE = "compare"
COMPARISON = "retrain-{model}"
PLACE = f"The report with its pictures: `{FOLDER / 'report.html'}` where the retraining ran."
# Title of the only issue, whatever went wrong.
ISSUE = "Retraining needs attention"


class Origin(NamedTuple):
    """Holds what was retrained."""

    commit: str
    preset: str
    seed: int
    is_new_seed: bool

    @property
    def summary(self) -> str:
        new = " (new)" if self.is_new_seed else ""
        return f"commit {self.commit[:12]}, preset {self.preset}, seed {self.seed}{new}"


class Outcome(NamedTuple):
    """Holds how a retraining ended, with a branch if there is something to merge, or the first
    reason of a failure.
    """

    kind: Literal["unchanged", "proposed", "broken", "stopped"]
    exit: int
    title: str
    body: str
    branch: str | None = None
    reason: str | None = None


class Comparisons(NamedTuple):
    """Holds what comparisons with the champions say: a part of a body, and verdicts by model."""

    text: str = ""
    verdicts: Mapping[str, str] = NOTHING


def better_models(results: Sequence[Judgement]) -> list[str]:
    """Returns the models with a clearly better score: equal ones must not wear baselines down."""
    return [
        result.model for result in results if any(line.status == "better" for line in result.lines)
    ]


def unchanged(origin: Origin) -> Outcome:
    body = f"The gate passed ({origin.summary}), and no score is better."
    return Outcome("unchanged", 0, "Retrain: nothing better", body)


def proposed(
    origin: Origin,
    results: Sequence[Judgement],
    better: Sequence[str],
    branch: str,
    comparisons: Comparisons,
) -> Outcome:
    helped = [model for model, word in comparisons.verdicts.items() if word == "better"]
    names = list(dict.fromkeys([*better, *helped]))
    seed = f" (seed {origin.seed})" if origin.is_new_seed else ""
    moves = "No baseline moves: the scores hold them."
    if better:
        moves = f"Baselines of {', '.join(better)} move: a score is clearly better, none is worse."
    parts = (
        f"The gate passed ({origin.summary}).",
        moves,
        render.markdown(results),
        render.changes_of_all([each for each in results if each.model in names]),
        comparisons.text,
        PLACE,
    )
    title = f"Retrain: {', '.join(names)} better{seed}"
    return Outcome("proposed", 0, title, "\n\n".join(filter(None, parts)), branch)


def read_comparisons(folder: Path, codes: Mapping[str, int]) -> Comparisons:
    """Returns what the comparison of each model found, or its exit code."""
    parts = ["## Champion against new, over seeds"]
    verdicts: dict[str, str] = {}
    for model, code in codes.items():
        page = folder / COMPARISON.format(model=model) / "compare.md"
        if code:
            parts.append(f"{model}: the comparison ended with exit code {code}; the log says why.")
        elif page.exists():
            parts.append(re.sub("^#", "###", page.read_text().strip(), flags=re.MULTILINE))
            verdicts[model] = json.loads(page.with_suffix(".json").read_text())["verdict"]
        else:
            parts.append(f"{model}: code and params are the champion's; nothing to compare.")
    return Comparisons("\n\n".join(parts), verdicts)


def broken(origin: Origin, results: Sequence[Judgement]) -> Outcome:
    gate = f"The gate is broken ({origin.summary}). Nothing was promoted and nothing was pushed."
    changes = render.changes_of_all([each for each in results if not each.passed])
    parts = (gate, render.summary(results), changes, render.markdown(results), PLACE)
    body = "\n\n".join(filter(None, parts))
    reasons = [f"{each.model}: {line.why}" for each in results for line in each.broken]
    return Outcome("broken", BaselineBroken.exit_code, ISSUE, body, reason=reasons[0])


def stopped(reason: str, code: int) -> Outcome:
    stop = f"The retraining stopped with exit code {code}:"
    last = "Nothing was promoted and no branch was pushed."
    body = f"{stop}\n\n    {redact(reason)}\n\n{last}"
    return Outcome("stopped", code, ISSUE, body, reason=redact(reason))


def clear(folder: Path) -> None:
    for name in (OUTCOME, BODY, *REPORTS):
        (folder / name).unlink(missing_ok=True)
    shutil.rmtree(folder / COMPARE, ignore_errors=True)


def write(folder: Path, result: Outcome) -> None:
    """Stores the outcome for a program, and its body: without them, the retraining was killed."""
    values = result._asdict()
    body = f"{values.pop('body')}\n".encode()
    write_together(folder, {BODY: body, OUTCOME: f"{json.dumps(values)}\n".encode()})
