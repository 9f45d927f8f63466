"""scores, baselines, rules -> judgements, and an exit code: 0 if every model holds its baseline,
else a line per broken metric.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from pipeline.judging import render
from pipeline.judging.baseline_files import damaged, read_baseline
from pipeline.judging.changes import what_changed
from pipeline.judging.scores import (
    FreshScores,
    NotFresh,
    fresh_scores,
    path_of,
    scores_of,
    with_info,
)
from pipeline.runtime import console
from pipeline.runtime.errors import BaselineBroken, described
from pipeline.runtime.hints import promote_hint
from quatrain.baselines import BaselineError, Rule
from quatrain.errors import DataError
from quatrain.judgement import Judgement, Line, Scores
from quatrain.judgement import judge as judge_by
from quatrain.params import Params
from quatrain.registry import load

# Statuses of scores that become no baseline, even by force.
UNUSABLE = {"missing", "not finite", "bad interval"}


def gate(root: Path, work: Path, models: Sequence[str], params: Params) -> int:
    """Prints the score table and what is broken; returns 3 if a file cannot be read, 4 if a
    baseline is broken, or 0.

    root: the checkout, with the baselines. work: the folder of the preset's results. params: those
    of the preset.
    """
    judgements: list[Judgement] = []
    failures = []
    for model in models:
        try:
            judgements.append(judge(work, model, params, root))
        except DataError as error:
            failures.append(f"gate: {model}: {described(error)} [exit {error.exit_code}]")
    if judgements:
        print(render.text(judgements), flush=True)
    broken = [line for each in judgements if not each.passed for line in reasons(each)]
    for line in (*failures, *broken):
        console.info(line)
    if failures or broken:
        return DataError.exit_code if failures else BaselineBroken.exit_code
    count = sum(len(judgement.lines) for judgement in judgements)
    print(f"gate: passed; {count} metrics of preset {params.preset} hold their baselines")
    return 0


def reasons(judgement: Judgement) -> Iterator[str]:
    """Yields why a judgement is broken, each reason once with the origin of its baseline, then the
    remedy.
    """
    origin, model = judgement.provenance, judgement.model
    source = f"; baseline of {origin.get('date')}, commit {origin.get('commit')}" if origin else ""
    for text in dict.fromkeys(f"{line.status}: {line.why}" for line in judgement.broken):
        yield f"gate: {model}: {text}{source} [exit {BaselineBroken.exit_code}]"
    for line in judgement.changes:
        yield f"gate: {model}: changed since the baseline: {line}"
    if judgement.only_lacks_a_baseline:
        hint = promote_hint(judgement.preset, model)
        done = "trained and evaluated; nothing judges the scores yet"
        yield f"gate: {model}: {done}: {hint} stores them as the first baseline"
    # A promotion mends no scores below their references or goals.
    elif judgement.scores and not judgement.statuses & {*UNUSABLE, "below floor", "below goal"}:
        hint = promote_hint(judgement.preset, model, force=True)
        remedy = f"the scores are kept; to make them the baseline all the same: {hint}"
        yield f"gate: {model}: {remedy}"


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
    return judge_run(root or work, work, model, params, fresh)


def judge_committed(root: Path, model: str, params: Params) -> Judgement:
    """Judges scores whose learner may be elsewhere, as in a clone.

    Raises:
        DataError: a file cannot be read, or the learner is not as it was saved.
    """
    judgement = judge(root, model, params)
    if os.path.lexists(root / "models" / model) or not path_of(root, model).exists():
        return judgement
    with suppress(NotFresh):
        return judge_run(root, root, model, params, with_info(scores_of(root, model, params)))
    return judgement


def judge_run(root: Path, work: Path, model: str, params: Params, fresh: FreshScores) -> Judgement:
    """Judges the scores of the run in `work`, and says what differs from the baseline's run.

    Raises:
        DataError: the baseline cannot be read.
    """
    judgement = judge_scores(root, model, params, fresh.scores)._replace(learner=fresh.info)
    return judgement._replace(changes=tuple(what_changed(work, judgement, params)))


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
        raise damaged(model, f"baselines/{model}.json: {error}") from None


def rules_of(model: str, preset: str, config: Any = None) -> tuple[Rule, ...]:
    """Returns the rules of the model's `rules.gated`, without its framework.

    config: of the model; None: one with an environment of this project.
    """
    return tuple(gated.under(preset) for gated in load(model).rules.gated(config))
