"""verdicts -> exit code: 0 if every model holds its baseline, else a line per broken metric."""

from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import tables, verdicts
from pipeline.judging.verdicts import ModelVerdict
from pipeline.runtime import console
from pipeline.runtime.errors import BaselineBroken, described
from pipeline.storage.params_file import read_params
from quatrain.errors import DataError


def gate(root: Path, work: Path, models: Sequence[str], preset: str | None = None) -> int:
    """Prints the score table and what is broken; returns 3 if a file cannot be read, 4 if a
    baseline is broken, or 0.

    root: the checkout, with params and baselines. work: the folder of the preset's results.

    Raises:
        ConfigError: params.yaml cannot be used.
    """
    params = read_params(root, preset)
    results: list[ModelVerdict] = []
    failures = []
    code = 0
    for model in models:
        try:
            results.append(verdicts.check(work, model, params.preset, params, root))
        except DataError as error:
            code = error.exit_code
            failures.append(f"gate: {model}: {described(error)} [exit {code}]")
    if results:
        print(tables.table(results), flush=True)
    broken = [line for result in results for line in broken_lines(result)]
    for line in (*failures, *broken):
        console.info(line)
    if broken and not code:
        code = BaselineBroken.exit_code
    if not code:
        count = sum(len(result.verdict.lines) for result in results)
        print(f"gate: passed; {count} metrics hold their baselines")
    return code


def broken_lines(result: ModelVerdict) -> list[str]:
    """Returns a line per broken metric with the origin of its baseline, then the remedies."""
    origin = result.baseline.provenance
    source = f"; baseline of {origin.get('date')}, commit {origin.get('commit')}" if origin else ""
    lines = [
        f"gate: {result.model}: {line.status}: {line.why}{source} [exit {BaselineBroken.exit_code}]"
        for line in result.broken
    ]
    return [*dict.fromkeys(lines), *(f"gate: {result.model}: {line}" for line in advice(result))]


def advice(result: ModelVerdict) -> list[str]:
    """Returns the command that stores these scores as the baseline, if they may be stored."""
    statuses = {line.status for line in result.broken}
    if result.only_lacks_a_baseline:
        command = verdicts.promote_hint(result.model, result.preset)
        return [f"no baseline yet: {command} stores these scores as the first"]
    command = verdicts.promote_hint(result.model, result.preset)
    if (
        any(line.metric == "-" for line in result.verdict.lines)
        or not statuses
        or statuses & {"missing", "not finite", "bad interval"}
    ):
        return []
    return [
        "the scores are kept; "
        f"to make them the baseline all the same: {command}, with ARGS=\"--force --why '...'\""
    ]
