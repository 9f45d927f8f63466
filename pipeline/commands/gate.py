"""verdicts -> exit code: 0 where every model holds its baseline, 4 with a line per broken metric where one does not."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline.judging import verdicts
from pipeline.judging.verdicts import Judged
from pipeline.runtime.errors import ArtifactError, ConfigError
from pipeline.storage.params_file import read_params
from quatrain.baselines import PASSED
from quatrain.registry import MODELS


def known_models(names: Sequence[str]) -> list[str]:
    """The models that a command line names; all of them if it names none.

    Raises:
        ConfigError: there is no such model.
    """
    unknown = sorted(set(names) - set(MODELS))
    if unknown:
        raise ConfigError(f"unknown model {unknown[0]!r}; known: {', '.join(MODELS)}")
    return list(names or MODELS)


def gate(root: Path, models: Sequence[str]) -> int:
    """Print the table and what is broken; 3 where a file cannot be read, else 4 where something is broken, else 0.

    Raises:
        ConfigError: params.yaml cannot be used.
    """
    preset = read_params(root).preset
    judged, unreadable = [], []
    for model in models:
        try:
            judged.append(verdicts.check(root, model, preset))
        except ArtifactError as error:
            unreadable.append(f"gate: {model}: {error} [exit 3]")
    if judged:
        print(verdicts.table(judged), flush=True)
    broken = [text for one in judged for text in broken_lines(one)]
    for text in (*unreadable, *broken):
        print(text, file=sys.stderr)
    if unreadable:
        return 3
    if broken:
        return 4
    print(
        f"gate: passed; {sum(len(one.verdict.lines) for one in judged)} metrics hold their baselines"
    )
    return 0


def broken_lines(judged: Judged) -> list[str]:
    """What is broken, where its baseline comes from, and what to do about it."""
    lines = [line for line in judged.verdict.lines if line.status not in PASSED]
    origin = judged.entry["provenance"]
    source = f"; baseline of {origin.get('date')}, commit {origin.get('commit')}" if origin else ""
    told = (f"gate: {judged.model}: {line.status}: {line.why}{source} [exit 4]" for line in lines)
    return [*dict.fromkeys(told), *(f"gate: {judged.model}: {text}" for text in advice(judged))]


def advice(judged: Judged) -> list[str]:
    """The command that stores these scores as the baseline, where that is a way out."""
    statuses = {line.status for line in judged.verdict.lines} - set(PASSED)
    where = "" if judged.preset == "default" else f" --preset {judged.preset}"
    command = f"python -m pipeline.commands.promote {judged.model}{where}"
    if statuses == {"no baseline"}:
        return [f"to make these scores its baseline: {command}"]
    untrusted = any(line.metric == "-" for line in judged.verdict.lines)
    if untrusted or not statuses or statuses & {"missing", "not finite"}:
        return []
    return [
        f"the scores are kept; to make them the baseline all the same: {command} --force --why '...'"
    ]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.commands.gate", description=__doc__)
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named"
    )
    try:
        return gate(Path.cwd(), known_models(parser.parse_args(argv).models))
    except ConfigError as error:
        print(f"gate: {error} [exit 2]", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
