"""scores, baselines, rules -> judgements, and an exit code: 0 if every model holds its baseline,
else a line per broken metric.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipeline.judging import render
from pipeline.judging.scores import NotFresh, fresh_scores
from pipeline.runtime import console
from pipeline.runtime.errors import BaselineBroken, described
from pipeline.storage.params_file import read_params
from quatrain.baselines import BaselineError, Rule
from quatrain.errors import DataError
from quatrain.judgement import Judgement, Line, Scores
from quatrain.judgement import judge as judge_by
from quatrain.params import Params
from quatrain.registry import load
from quatrain.storage import folders

# What no promotion mends.
UNUSABLE = {"missing", "not finite", "bad interval", "below floor"}


def gate(root: Path, work: Path, models: Sequence[str], preset: str | None = None) -> int:
    """Prints the score table and what is broken; returns 3 if a file cannot be read, 4 if a
    baseline is broken, or 0.

    root: the checkout, with params and baselines. work: the folder of the preset's results.

    Raises:
        ConfigError: params.yaml cannot be used.
    """
    params = read_params(root, preset)
    judgements: list[Judgement] = []
    failures = []
    code = 0
    for model in models:
        try:
            judgements.append(judge(work, model, params, root))
        except DataError as error:
            code = error.exit_code
            failures.append(f"gate: {model}: {described(error)} [exit {code}]")
    if judgements:
        print(render.text(judgements), flush=True)
    broken = [line for judgement in judgements for line in broken_lines(judgement)]
    for line in (*failures, *broken):
        console.info(line)
    if broken and not code:
        code = BaselineBroken.exit_code
    if not code:
        count = sum(len(judgement.lines) for judgement in judgements)
        print(f"gate: passed; {count} metrics of preset {params.preset} hold their baselines")
    return code


def broken_lines(judgement: Judgement) -> list[str]:
    """Returns a line per broken metric with the origin of its baseline, then the remedy."""
    origin = judgement.provenance
    source = f"; baseline of {origin.get('date')}, commit {origin.get('commit')}" if origin else ""
    lines = [
        f"{line.status}: {line.why}{source} [exit {BaselineBroken.exit_code}]"
        for line in judgement.broken
    ]
    statuses = {line.status for line in judgement.broken}
    if judgement.only_lacks_a_baseline:
        command = promote_hint(judgement.preset, judgement.model)
        lines.append(f"no baseline yet: {command} stores these scores as the first")
    elif judgement.scores and statuses and not statuses & UNUSABLE:
        command = promote_hint(judgement.preset, judgement.model, force=True)
        lines.append(f"the scores are kept; to make them the baseline all the same: {command}")
    return [f"gate: {judgement.model}: {line}" for line in dict.fromkeys(lines)]


def promote_hint(preset: str, *models: str, force: bool = False) -> str:
    """Returns the command that stores scores as baselines, `force`: worse ones, too."""
    named = "" if preset == "default" else f" PRESET={preset}"
    names = " ".join(models)
    quoted = f"'{names}'" if len(models) > 1 else names
    options = """ ARGS="--force --why '...'\"""" if force else ""
    return f"`make promote{named} MODELS={quoted}{options}`"


def judge(work: Path, model: str, params: Params, root: Path | None = None) -> Judgement:
    """Judges the scores in `work` by the baselines in `root`, if they are fresh; `work` if None.

    params: those of the preset. Scores that are not fresh have one line, which says why.

    Raises:
        DataError: a file cannot be read, or the learner is not as it was saved.
    """
    try:
        fresh = fresh_scores(work, model, params)
    except NotFresh as error:
        return Judgement(params.preset, (Line("-", error.status, str(error)),), model)
    return judge_scores(root or work, model, params, fresh.scores)._replace(learner=fresh.info)


def judge_scores(root: Path, model: str, params: Params, scores: Scores) -> Judgement:
    """Judges scores by the baselines in `root`, whatever they were made by.

    Raises:
        DataError: the baseline cannot be read.
    """
    rules = rules_of(model, params.preset, getattr(params, model))
    content = read_baseline(root, model)
    try:
        return judge_by(scores, content, rules, params.preset)._replace(model=model)
    except BaselineError as error:
        reason = f"baselines/{model}.json: {error}"
        raise DataError(reason, remedy=restore_hint(model)) from None


def rules_of(
    model: str, preset: str, config: BaseModel | Mapping[str, Any] | None = None
) -> tuple[Rule, ...]:
    """Returns the rules of the model's `rules.GATED`, without its framework.

    config: of the model; None: one with an environment of this project.
    """
    return tuple(gated.under(preset) for gated in load(model, config).rules.GATED)


def baseline_path(root: Path, model: str) -> Path:
    return root / "baselines" / f"{model}.json"


def read_baseline(root: Path, model: str) -> dict[str, Any] | None:
    """Returns the unchecked content of a baseline file; None if there is no file.

    Raises:
        DataError: it is not JSON, or belongs to another model.
    """
    path = baseline_path(root, model)
    if not path.exists():
        return None
    try:
        baseline = folders.read_json(path)
    except DataError as error:
        raise DataError(error.reason, remedy=restore_hint(model)) from None
    if not isinstance(baseline, dict) or baseline.get("model") != model:
        reason = f"baselines/{path.name}: is not the baseline of {model}"
        raise DataError(reason, remedy=restore_hint(model))
    return baseline


def restore_hint(model: str) -> str:
    return f"`git checkout baselines/{model}.json` restores it"
