"""reports/MODEL/scores.json: scores with the digests of what made them, so that each reader can
tell whether they belong to what is in the workspace now.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from pipeline.storage.run_key import params_of, sources_of
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


class StoredScores(Record):
    """Holds scores.json; a score is None if it was not finite."""

    model: str
    preset: str
    # Of what made the scores, by the keys of NAMES.
    digests: dict[str, str]
    scores: dict[str, FiniteNumber | None]


class FreshScores(NamedTuple):
    """Holds scores that belong to the learner of the workspace; info: what its manifest says."""

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


def digests_of(root: Path, model: str, params: Params, learner: str, data: str) -> dict[str, str]:
    """Returns the digests of learner, dataset and params, and of the code that evaluates, which
    includes inputs/MODEL.
    """
    return {
        "learner": learner,
        "data": data,
        "params": folders.digest_of(params_of(params, model)),
        "code": folders.digest_of(sources_of(root, model, params, "evaluate")),
    }


def write_scores(
    root: Path, model: str, preset: str, digests: dict[str, str], scores: Mapping[str, float | None]
) -> None:
    stored = StoredScores(model=model, preset=preset, digests=digests, scores=dict(scores))
    folders.write_json(path_of(root, model), stored.model_dump())


def read_scores(root: Path, model: str) -> StoredScores:
    """Returns the scores in `root`, whatever they were made by.

    Raises:
        DataError: the file is missing, or not one that `evaluate` writes.
    """
    path = path_of(root, model)
    try:
        return StoredScores.model_validate(folders.read_json(path))
    except ValidationError as error:
        reason = f"reports/{model}/{path.name}: {first_error(error)}"
        raise DataError(reason, remedy="`make repro` writes it anew") from None


def first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def fresh_scores(root: Path, model: str, params: Params) -> FreshScores:
    """Returns the scores in `root` if learner, data, params and code are those that made them; the
    dataset may be absent. Hashes every file of the learner.

    Raises:
        NotFresh: scores or learner are missing, or one of the four has changed.
        DataError: a file cannot be read, or the learner is not as it was saved.
    """
    hint = repro_hint(params.preset)
    if not path_of(root, model).exists():
        raise NotFresh("missing", f"{model} was not evaluated yet", hint)
    stored = read_scores(root, model)
    weights, data = (root / kind / model for kind in ("models", "data"))
    if not os.path.lexists(weights):
        raise NotFresh("missing", f"models/{model}, which was evaluated, is not there", hint)
    if (stored.model, stored.preset) != (model, params.preset):
        reason = f"the scores are those of {stored.model}, preset {stored.preset!r}"
        raise NotFresh("stale", reason, hint)
    learner = folders.verify(weights)
    dataset = folders.read_digest(data) if os.path.lexists(data) else stored.digests.get("data", "")
    current = digests_of(root, model, params, learner.digest, dataset)
    for kind, name in NAMES.items():
        if stored.digests.get(kind) != current[kind]:
            reason = f"{name.format(model)} changed after {model} was evaluated"
            raise NotFresh("stale", reason, hint)
    return FreshScores(stored.scores, learner.info)


def repro_hint(preset: str) -> str:
    return "run `make repro`" if preset == "default" else f"run `make repro PRESET={preset}`"
