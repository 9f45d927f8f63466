"""scores.json, baselines/MODEL.json -> verdict.json, and whether a verdict is still valid."""

import os
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.storage.trained_model import verified_origin
from quatrain.baselines import (
    BaselineError,
    FiniteNumber,
    PresetBaseline,
    Record,
    Rule,
    preset_of,
)
from quatrain.errors import DataError, QuatrainError
from quatrain.judgement import (
    NO_RULE,
    PASSED,
    Comparison,
    Line,
    Scores,
    Status,
    Verdict,
    compare,
    judge,
)
from quatrain.params import Params
from quatrain.registry import load

# Keys of params.yaml that all models' scores depend on.
SHARED = ("seed", "device", "devices", "threads", "deterministic")
NO_BASELINE = PresetBaseline.model_construct(metrics={}, provenance={})
SCORES = TypeAdapter(dict[str, FiniteNumber | None])


class ModelVerdict(NamedTuple):
    """Holds a model's verdict under a preset, with the scores, rules and baseline behind it.

    A stale or missing verdict has none of these.
    """

    model: str
    preset: str
    verdict: Verdict
    baseline: PresetBaseline = NO_BASELINE
    scores: Scores = MappingProxyType({})
    rules: tuple[Rule, ...] = ()

    @property
    def broken(self) -> tuple[Line, ...]:
        return tuple(line for line in self.verdict.lines if line.status not in PASSED)

    @property
    def only_lacks_a_baseline(self) -> bool:
        """Returns whether nothing was judged, because no baseline is stored yet."""
        return {line.status for line in self.broken} == {"no baseline"}

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return compare(self.verdict, self.baseline.metrics, self.scores)

    @property
    def baseline_digest(self) -> str | None:
        """Returns the digest of this preset's entry in the baseline file; None if there is none."""
        is_stored = bool(self.baseline.metrics)
        return artifacts.digest_of(self.baseline.model_dump(mode="json")) if is_stored else None


class StoredVerdict(Record):
    """Holds verdict.json: the judgement, and digests of everything that it depends on."""

    model: str
    preset: str
    passed: bool
    learner: str
    params: str
    scores_sha256: str
    baseline_sha256: str | None
    rules: tuple[Rule, ...] = Field(strict=False)
    lines: tuple[Line, ...] = Field(strict=False)


class StaleVerdict(QuatrainError):
    """Says why the verdict is missing, or does not match the current scores, weights or params."""

    exit_code = 4

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status: Status = status


class Files(NamedTuple):
    scores: Path
    baseline: Path
    verdict: Path


def files(root: Path, model: str) -> Files:
    reports = root / "reports" / model
    return Files(
        scores=reports / "scores.json",
        baseline=root / "baselines" / f"{model}.json",
        verdict=reports / "verdict.json",
    )


def rules_of(model: str, preset: str, config: BaseModel | None = None) -> tuple[Rule, ...]:
    """Returns the rules of the model's `rules.GATED`, without its framework.

    config: of the model; None: one with an environment of this project.
    """
    return tuple(gated.under(preset) for gated in load(model, config).rules.GATED)


def write(root: Path, model: str, params: Params) -> ModelVerdict:
    """Judges the current scores and stores the verdict beside them.

    Raises:
        DataError: scores, baseline or weights cannot be read.
    """
    paths = files(root, model)
    rules = rules_of(model, params.preset, getattr(params, model))
    result = judge_files(paths, model, params.preset, rules)
    stored = StoredVerdict(
        model=model,
        preset=params.preset,
        passed=result.verdict.passed,
        learner=artifacts.folder_digest(root / "models" / model),
        params=params_digest(params, model),
        scores_sha256=artifacts.file_digest(paths.scores),
        baseline_sha256=result.baseline_digest,
        rules=rules,
        lines=result.verdict.lines,
    )
    artifacts.write_json(paths.verdict, stored.model_dump(by_alias=True))
    return result


def params_digest(params: Params, model: str) -> str:
    """Returns the digest of everything in params.yaml that the model's scores depend on."""
    return artifacts.digest_of(params.model_dump(mode="json", include={*SHARED, model}))


def check(
    root: Path,
    model: str,
    preset: str,
    params: Params | None = None,
    checkout: Path | None = None,
) -> ModelVerdict:
    """Repeats the stored judgement by the model's own rules; fails if the verdict is missing,
    altered or out of date.

    params: as for `stored_verdict`. checkout: the folder of the baselines; `root` if None.

    Raises:
        DataError: a file cannot be read, or the learner is not as it was saved.
        ConfigError: params.yaml cannot be used.
    """
    baseline = files(checkout or root, model).baseline
    paths = files(root, model)._replace(baseline=baseline)
    try:
        stored = stored_verdict(root, model, preset, params)
        result = judge_files(paths, model, preset, stored.rules)
        if stored.baseline_sha256 != result.baseline_digest:
            reason = f"baselines/{model}.json changed after the verdict"
        elif Verdict(stored.passed, stored.lines) != result.verdict:
            reason = "the verdict is not what these scores give: altered"
        else:
            return result
        raise StaleVerdict("stale", f"{reason}; {repro_hint(preset)}")
    except StaleVerdict as error:
        line = NO_RULE.model_copy(update={"status": error.status, "why": str(error)})
        return ModelVerdict(model, preset, Verdict(False, (line,)))


def stored_verdict(
    root: Path, model: str, preset: str, params: Params | None = None
) -> StoredVerdict:
    """Returns the verdict of the current scores, whatever baseline it was judged by. A dataset may
    be missing, but not be another one.

    params: the params that the scores must belong to; those in `root` if None.

    Raises:
        StaleVerdict: it is missing, or is one of other scores, params, weights, data, rules, model
        or preset; or there is no learner.
        DataError: a file cannot be read, or the learner is not as it was saved.
        ConfigError: params.yaml cannot be used.
    """
    paths = files(root, model)
    hint = repro_hint(preset)
    params = params or read_params(root)
    if not paths.scores.exists() or not paths.verdict.exists():
        raise StaleVerdict("missing", f"{model} was not evaluated yet; {hint}")
    content = artifacts.read_json(paths.verdict)
    if not isinstance(content, dict) or content.get("model") != model:
        raise StaleVerdict("stale", f"the verdict is not one of {model}; {hint}")
    try:
        stored = StoredVerdict.model_validate(content)
    except ValidationError as error:
        raise DataError(
            f"{model}/verdict.json: {first_error(error)}; run `dvc repro` to write it anew"
        ) from None
    learner = root / "models" / model
    if not os.path.lexists(learner):
        raise StaleVerdict("missing", f"models/{model}, which was evaluated, is not there; {hint}")
    if stored.preset != preset:
        reason = f"the verdict is one of preset {stored.preset!r}, not of {preset!r}"
    elif stored.scores_sha256 != artifacts.file_digest(paths.scores):
        reason = "the scores changed after the verdict"
    elif stored.learner != artifacts.verify(learner).digest:
        reason = f"models/{model} changed after the verdict"
    elif stored.params != params_digest(params, model):
        reason = f"params.yaml changed after {model} was evaluated"
    elif stored.rules != rules_of(model, preset, getattr(params, model)):
        reason = f"the verdict is one of other rules than those of {model}"
    else:
        _check_data(root, model, verified_origin(learner, model, params), hint)
        return stored
    raise StaleVerdict("stale", f"{reason}; {hint}")


def _check_data(root: Path, model: str, learner: artifacts.Loaded, hint: str) -> None:
    data = root / "data" / model
    if os.path.lexists(data) and artifacts.folder_digest(data) != learner.info["dataset"]:
        raise StaleVerdict("stale", f"data/{model} is not what {model} was trained on; {hint}")


def first_error(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"


def promote_hint(model: str, preset: str) -> str:
    """Returns the command that stores a model's scores as its baseline."""
    named = "" if preset == "default" else f" PRESET={preset}"
    return f"`make promote{named} MODELS={model}`"


def repro_hint(preset: str) -> str:
    return "run `make repro`" if preset == "default" else f"run `make repro PRESET={preset}`"


def judge_files(paths: Files, model: str, preset: str, rules: Sequence[Rule]) -> ModelVerdict:
    """Judges the scores in a file by the baseline in a file.

    Raises:
        DataError: a file cannot be read.
    """
    scores = read_scores(paths.scores)
    content = read_baseline(paths.baseline, model)
    try:
        verdict = judge(scores, content, rules, preset)
        baseline = preset_of(content, preset) or NO_BASELINE
    except BaselineError as error:
        raise DataError(f"baselines/{model}.json: {error}; {_restore(model)}") from None
    return ModelVerdict(model, preset, verdict, baseline, scores, tuple(rules))


def read_scores(path: Path) -> dict[str, float | None]:
    """Returns name -> number; None if the score was not finite.

    Raises:
        DataError: the file is not one that `evaluate` writes.
    """
    try:
        return SCORES.validate_python(artifacts.read_json(path))
    except ValidationError:
        raise DataError(
            f"{path.parent.name}/{path.name}: must map names to numbers; "
            "run `dvc repro` to write it anew"
        ) from None


def read_baseline(path: Path, model: str) -> dict[str, Any] | None:
    """Returns the unchecked content of a baseline file; None if there is no file.

    Raises:
        DataError: it is not JSON, or belongs to another model.
    """
    if not path.exists():
        return None
    try:
        baseline = artifacts.read_json(path)
    except DataError as error:
        raise DataError(error.reason, remedy=_restore(model)) from None
    if not isinstance(baseline, dict) or baseline.get("model") != model:
        raise DataError(
            f"baselines/{model}.json: is not the baseline of {model}; {_restore(model)}"
        )
    return baseline


def _restore(model: str) -> str:
    return f"`git checkout baselines/{model}.json` restores it"
