"""a registered model, a version -> that version as champion, with its scores as the baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.judging.baseline_files import baseline_path
from pipeline.judging.gate import rules_of
from pipeline.judging.promotion import with_entry
from pipeline.storage.params_file import read_params, workspace_of
from pipeline.tracking.champions import CHAMPION, SINCE, set_champions
from pipeline.tracking.registry import (
    evaluation_of,
    registered_name,
    version_with_alias,
    versions_of,
)
from pipeline.tracking.store import check_reachable, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import encode_file

# Versions that a message lists.
MOST_LISTED = 10


def rollback(root: Path, preset: str, model: str, number: int | None, why: str | None) -> None:
    """Makes an earlier version of a model the champion, and its scores the baseline of the preset.

    number: of the version; None: the last champion before the one at present.

    Raises:
        Unreachable: the store does not answer; a baseline that is written by then stays, and `make
            sync` moves the alias.
        ConfigError: there is no such version.
        DataError: its run has no scores, or the baseline cannot be read.
    """
    uri = resolve_uri(root)
    check_reachable(uri)
    call = open_client(uri).call
    name = registered_name(model, preset)
    versions = versions_of(call, name)
    current = version_with_alias(call, name, CHAMPION)
    target = version_to_set(name, versions, current, number)
    evaluation = evaluation_of(call, target.run_id)
    if evaluation.keys() < {"scores", "provenance"}:
        raise DataError(
            f"version {target.version} of {name}: its run has no record of an evaluation",
            remedy="name another version, or evaluate it and `make sync`",
        )
    params = read_params(root, preset)
    rules = rules_of(model, preset, getattr(params, model))
    why = why or f"rolled back from version {current}"
    run = (evaluation["scores"], evaluation["provenance"])
    path = baseline_path(root, model)
    baseline = with_entry(root, model, preset, rules, *run, why)
    write_durably(path, encode_file(path, baseline)[0])
    print(
        f"baselines/{path.name}: preset {preset} now holds the scores of version {target.version}"
    )
    for alias in set_champions(root, workspace_of(root, preset), preset, again=True):
        if alias.text.startswith(f"{name}@"):
            print(alias.text)
    print(
        f"commit baselines/{path.name}; start what serves {name}@{CHAMPION} anew; models/{model} "
        "and params.yaml are as before: `make back` restores those of the last commit"
    )


def version_to_set(
    name: str, versions: Sequence[Any], current: str | None, number: int | None
) -> Any:
    """Returns the version with a number or, without one, the last champion before the current one.

    Raises:
        ConfigError: there is none; the message lists those that there are.
    """
    numbers = {int(each.version): each for each in versions}
    if number is None:
        past = [each for each in versions if SINCE in each.tags and str(each.version) != current]
        if past:
            return max(past, key=lambda each: each.tags[SINCE])
        before = "" if current is None else f" before version {current}"
        reason = f"no version of {name} was the champion{before}"
    elif number in numbers:
        return numbers[number]
    else:
        reason = f"{name} has no version {number}"
    listed = ", ".join(map(str, [*numbers][:MOST_LISTED])) or "none"
    raise ConfigError(f"{reason} in this store; name one by VERSION=: {listed}")
