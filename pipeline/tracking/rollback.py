"""a registered model, a version -> that version as champion, with its scores as the baseline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.judging.baseline_files import baseline_path
from pipeline.judging.gate import UNUSABLE, judge_scores, rules_of
from pipeline.judging.promotion import with_entry
from pipeline.storage.params_file import read_params, workspace_of
from pipeline.storage.run_key import params_of
from pipeline.tracking.champions import CHAMPION, LEFT, SINCE, set_champions
from pipeline.tracking.registry import (
    RUN_KEY_TAG,
    Call,
    evaluation_of,
    registered_name,
    version_with_alias,
    versions_of,
)
from pipeline.tracking.store import Unreachable, open_client, reason_of, resolve_uri
from quatrain.differences import differing
from quatrain.errors import ConfigError, DataError, QuatrainError
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import encode_file

# Versions that a message lists.
MOST_LISTED = 10


def rollback(root: Path, preset: str, model: str, number: int | None, why: str | None) -> None:
    """Makes an earlier version of a model the champion, and its scores the baseline of the preset.

    number: of the version; None: the last champion before the one at present that no rollback has
    left.

    Raises:
        Unreachable: the store does not answer; a baseline that is written by then stays, and `make
            sync` moves the alias.
        ConfigError: there is no such version.
        DataError: its run has no scores, or the baseline cannot be read.
    """
    uri = resolve_uri(root)
    try:
        _rollback(open_client(uri).call, root, preset, model, number, why)
    except QuatrainError:
        raise
    except Exception as error:  # of mlflow and its libraries
        raise Unreachable(f"the store {uri} refused: {reason_of(error)}") from None


def _rollback(
    call: Call, root: Path, preset: str, model: str, number: int | None, why: str | None
) -> None:
    name = registered_name(model, preset)
    versions = versions_of(call, name)
    current = version_with_alias(call, name, CHAMPION)
    target = version_to_set(name, versions, current, number)
    evaluation = evaluation_of(call, target.run_id)
    scores = evaluation.get("scores", {})
    params = read_params(root, preset)
    judgement = judge_scores(root, model, params, scores)
    if unusable := [line.why for line in judgement.broken if line.status in UNUSABLE]:
        raise DataError(
            f"version {target.version} of {name} has no scores for a baseline: {unusable[0]}",
            remedy="name another version by VERSION=",
        )
    # Versions of older code recorded no more than the key.
    provenance = evaluation.get("provenance", {"run_key": target.tags[RUN_KEY_TAG]})
    reason = why or "rolled back" + (f" from version {current}" if current else "")
    path = baseline_path(root, model)
    rules = rules_of(model, preset, getattr(params, model))
    baseline = with_entry(root, model, preset, rules, scores, provenance, reason)
    write_durably(path, encode_file(path, baseline)[0])
    print(f"baselines/{path.name}: preset {preset} now holds version {target.version}'s scores")
    for alias in set_champions(root, workspace_of(root, preset), preset, again=True):
        if alias.text.startswith(f"{name}@"):
            print(alias.text)
    if current and current != str(target.version):
        call("set_model_version_tag", name, current, LEFT, reason)
    present = params_of(params, model)
    for key, (value, other) in differing(provenance.get("params", present), present).items():
        print(f"that version has {key}: {value}, and params.yaml {other}")
    print(
        f"what is left: `make repro` writes the report anew, then commit baselines/{path.name}; "
        f"start what serves {name}@{CHAMPION} anew; models/{model} and params.yaml are as before"
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
        past = [
            each
            for each in versions
            if SINCE in each.tags and LEFT not in each.tags and str(each.version) != current
        ]
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
