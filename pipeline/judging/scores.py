"""reports/MODEL/scores.json: scores with the digests of what made them, so that each reader can
tell whether they belong to what is in the workspace now.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from pipeline.runtime.hints import repro_hint
from pipeline.storage.run_key import code_digest, params_of
from quatrain.baselines import FiniteNumber, Record
from quatrain.errors import DataError, QuatrainError
from quatrain.params import Params
from quatrain.storage import folders

# Digest -> what of the workspace it is one of.
NAMES = {
    "learner": "models/{}",
    "data": "data/{}",
    "params": "params.yaml",
    "code": "the code of {}",
}
# Digest of the scores themselves.
CONTENT = "scores"


class StoredScores(Record):
    """Holds scores.json; a score is None if it was not finite."""

    model: str
    preset: str
    # Of what made the scores, by the keys of NAMES, and of the scores.
    digests: dict[str, str]
    # What the learner's manifest says of its run: `run_key` and `settings`.
    run: dict[str, Any]
    scores: dict[str, FiniteNumber | None]


class FreshScores(NamedTuple):
    """Holds scores that belong to the learner of the workspace.

    info: `run_key` and `settings` of its run, and digests of `data`, and of the `code` that trained
    and evaluated it.
    """

    scores: Mapping[str, float | None]
    info: Mapping[str, Any]


class NotFresh(QuatrainError):
    """Says why scores are missing, or made by something else than is in the workspace."""

    exit_code = 4

    def __init__(self, status: Literal["missing", "stale"], reason: str, remedy: str) -> None:
        super().__init__(reason, remedy=remedy)
        self.status = status


def path_of(root: Path, model: str) -> Path:
    return root / "reports" / model / "scores.json"


def digests_of(root: Path, model: str, params: Params, **results: str) -> dict[str, str]:
    """Returns the digests of params, of the code that evaluates, which includes inputs/MODEL and a
    user's environment, and those of `results`: of the learner and its dataset.
    """
    return results | {
        "params": folders.digest_of(params_of(params, model)),
        "code": code_digest(root, model, params, "evaluate"),
    }


def stored_scores(
    model: str,
    preset: str,
    digests: Mapping[str, str],
    info: Mapping[str, Any],
    scores: Mapping[str, float | None],
) -> StoredScores:
    """Returns scores with what made them; info: what the learner's manifest says."""
    return StoredScores(
        model=model,
        preset=preset,
        digests={**digests, CONTENT: folders.digest_of(dict(scores))},
        run={"run_key": info["run_key"], "settings": dict(info["settings"])},
        scores=dict(scores),
    )


def write_scores(root: Path, stored: StoredScores) -> None:
    folders.write_json(path_of(root, stored.model), stored.model_dump())


def read_scores(root: Path, model: str) -> StoredScores:
    """Returns the scores in `root`, whatever they were made by.

    Raises:
        DataError: the file is missing, damaged, or not one that `evaluate` writes.
    """
    path = path_of(root, model)
    try:
        stored = StoredScores.model_validate(folders.read_json(path))
        if stored.digests.get(CONTENT) == folders.digest_of(stored.scores):
            return stored
        reason = "its scores are not those that were written"
    except ValidationError as error:
        reason = first_error(error)
    raise DataError(
        f"reports/{model}/{path.name}: {reason}",
        remedy="`make repro` (of a preset: PRESET=) writes it anew",
    )


def first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def scores_of(root: Path, model: str, params: Params) -> StoredScores:
    """Returns the scores in `root` if these params and this code made them, of whatever learner.

    Raises:
        NotFresh: there are none, or they are those of something else.
        DataError: the file cannot be read.
    """
    if not path_of(root, model).exists():
        reason = f"{model} was not evaluated yet"
        raise NotFresh("missing", reason, repro_hint(params.preset, model))
    stored = read_scores(root, model)
    if (stored.model, stored.preset) != (model, params.preset):
        raise stale(
            f"the scores are those of {stored.model}, preset {stored.preset!r}", params, model
        )
    compare(stored, digests_of(root, model, params), params)
    return stored


def fresh_scores(root: Path, model: str, params: Params) -> FreshScores:
    """Returns the scores in `root` if learner, data, params and code are those that made them; the
    dataset may be absent. Hashes every file of the learner.

    Raises:
        NotFresh: scores or learner are missing, or something that made them has changed.
        DataError: a file cannot be read, or the learner is not as it was saved.
    """
    stored = scores_of(root, model, params)
    weights, data = (root / kind / model for kind in ("models", "data"))
    if not os.path.lexists(weights):
        reason = f"models/{model}, which was evaluated, is not there"
        raise NotFresh("missing", reason, repro_hint(params.preset, model))
    learner = folders.verify(weights)
    current = {"learner": learner.digest}
    if os.path.lexists(data):
        current["data"] = folders.read_digest(data)
    compare(stored, current, params)
    if learner.info.get("code") != code_digest(root, model, params, "train"):
        raise stale(f"the code that trains {model} changed after it was trained", params, model)
    return with_info(stored)


def with_info(stored: StoredScores) -> FreshScores:
    """Returns scores with what is known of their run."""
    digests = {name: stored.digests[name] for name in ("data", "code")}
    return FreshScores(stored.scores, stored.run | digests)


def compare(stored: StoredScores, current: Mapping[str, str], params: Params) -> None:
    """Raises NotFresh if something that made the scores has another digest now."""
    model = stored.model
    for kind, digest in current.items():
        if stored.digests.get(kind) != digest:
            what = NAMES[kind].format(model)
            raise stale(f"{what} changed after {model} was evaluated", params, model)


def stale(reason: str, params: Params, model: str) -> NotFresh:
    return NotFresh("stale", reason, repro_hint(params.preset, model))
