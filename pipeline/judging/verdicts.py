"""scores.json, baselines/MODEL.json -> verdict.json, and whether a verdict still belongs to both."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from pipeline.runtime.errors import ArtifactError, PipelineError
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from quatrain.baselines import (
    BaselineError,
    Comparison,
    Line,
    Rule,
    Scores,
    Status,
    Verdict,
    compare,
    is_number,
    judge,
    preset_of,
)
from quatrain.params import Params
from quatrain.registry import load

ORIGIN = ("learner", "params")
"""Digests in a verdict of what its scores come from."""
SHARED = ("seed", "device", "threads", "deterministic")
"""Keys of params.yaml that all models' scores depend on."""
NO_ENTRY: Mapping[str, Any] = {"metrics": {}, "provenance": {}}


class Judged(NamedTuple):
    """A model's verdict under a preset; behind it the baseline's entry {"metrics", "provenance"} and the scores.

    A verdict that cannot be trusted has neither entry nor scores.
    """

    model: str
    preset: str
    verdict: Verdict
    entry: Mapping[str, Any] = NO_ENTRY
    scores: Scores = MappingProxyType({})

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        """Each judged score beside the stored one."""
        return compare(self.verdict, self.entry["metrics"], self.scores)


class StaleVerdict(PipelineError):
    """The verdict is missing, or does not match the current scores, weights or params."""

    exit_code = 4

    def __init__(self, status: Status, why: str) -> None:
        super().__init__(why)
        self.status: Status = status


class Files(NamedTuple):
    """What a judgement reads and writes."""

    scores: Path
    baseline: Path
    verdict: Path


def files(root: Path, model: str) -> Files:
    """Where they are."""
    reports = root / "reports" / model
    return Files(
        reports / "scores.json", root / "baselines" / f"{model}.json", reports / "verdict.json"
    )


def rules_of(model: str, preset: str) -> tuple[Rule, ...]:
    """What the model's evaluation wants judged; imports its framework."""
    return tuple(gated.under(preset) for gated in load(model).evaluate.GATED)


def write(root: Path, model: str, params: Params) -> Judged:
    """Judge the scores at hand, and store the verdict beside them with the digests of what it judged.

    Raises:
        ArtifactError: scores, baseline or learner cannot be read.
    """
    found, rules = files(root, model), rules_of(model, params.preset)
    judged = judge_files(found, model, params.preset, rules)
    origin = {
        "learner": artifacts.folder_digest(root / "models" / model),
        "params": params_digest(params, model),
    }
    artifacts.write_json(found.verdict, _content(found, judged, rules, origin))
    return judged


def params_digest(params: Params, model: str) -> str:
    """Of what a model's scores depend on in params.yaml."""
    return artifacts.digest_of(params.model_dump(mode="json", include={*SHARED, model}))


def check(root: Path, model: str, preset: str) -> Judged:
    """The stored verdict, judged once more; broken where it is missing, altered, or belongs to something else.

    Raises:
        ArtifactError: a file cannot be read.
    """
    found = files(root, model)
    try:
        stored = stored_verdict(root, model, preset)
        judged = judge_files(found, model, preset, _rules(found.verdict, stored))
        origin = {name: stored.get(name) for name in ORIGIN}
        expected = _content(found, judged, _rules(found.verdict, stored), origin)
        if stored.get("baseline_sha256") != expected["baseline_sha256"]:
            raise StaleVerdict(
                "stale", f"baselines/{model}.json changed after the verdict; {again(preset)}"
            )
        if stored != expected:
            raise StaleVerdict(
                "stale", f"the verdict is not what these scores give: altered; {again(preset)}"
            )
    except StaleVerdict as error:
        return Judged(
            model,
            preset,
            Verdict(False, (Line("-", error.status, None, None, "-", 0.0, str(error)),)),
        )
    return judged


def stored_verdict(
    root: Path, model: str, preset: str, params: Params | None = None
) -> dict[str, Any]:
    """The verdict that belongs to the scores at hand, whatever baseline it was judged by.

    params: as they are to be; those in `root` if none are given.

    Raises:
        StaleVerdict: there is none, or it belongs to another model, preset, scores, learner or params.
        ArtifactError: a file cannot be read.
        ConfigError: params.yaml cannot be used.
    """
    found = files(root, model)
    if not found.scores.exists() or not found.verdict.exists():
        raise StaleVerdict("missing", f"{model} was not evaluated yet; {again(preset)}")
    stored = artifacts.read_json(found.verdict)
    if not isinstance(stored, dict) or stored.get("model") != model:
        raise StaleVerdict("stale", f"the verdict is not one of {model}; {again(preset)}")
    if stored.get("preset") != preset:
        was = stored.get("preset")
        raise StaleVerdict(
            "stale", f"the verdict is one of preset {was!r}, not of {preset!r}; {again(preset)}"
        )
    if stored.get("scores_sha256") != artifacts.file_digest(found.scores):
        raise StaleVerdict("stale", f"the scores changed after the verdict; {again(preset)}")
    state = root / "models" / model
    if state.exists() and stored.get("learner") != artifacts.folder_digest(state):
        raise StaleVerdict("stale", f"models/{model} changed after the verdict; {again(preset)}")
    if stored.get("params") != params_digest(params or read_params(root), model):
        raise StaleVerdict(
            "stale", f"params.yaml changed after {model} was evaluated; {again(preset)}"
        )
    return stored


def again(preset: str) -> str:
    """What brings scores, verdict and report up to date."""
    return "run `make repro`" if preset == "default" else f"run `make repro PRESET={preset}`"


def judge_files(found: Files, model: str, preset: str, rules: Sequence[Rule]) -> Judged:
    """Judge scores by a baseline.

    Raises:
        ArtifactError: one of the two cannot be read.
    """
    scores, baseline = read_scores(found.scores), read_baseline(found.baseline, model)
    try:
        verdict, entry = judge(scores, baseline, rules, preset), preset_of(baseline, preset)
    except BaselineError as error:
        raise ArtifactError(f"baselines/{model}.json: {error}; {_restore(model)}") from None
    return Judged(model, preset, verdict, entry or NO_ENTRY, scores)


def read_scores(path: Path) -> dict[str, float | None]:
    """name -> number, or None where it was not finite.

    Raises:
        ArtifactError: not a file that `evaluate` writes.
    """
    scores = artifacts.read_json(path)
    if not isinstance(scores, dict) or not all(
        value is None or is_number(value) for value in scores.values()
    ):
        raise ArtifactError(
            f"{path.parent.name}/{path.name}: must map names to numbers; run `dvc repro` to write it anew"
        )
    return scores


def read_baseline(path: Path, model: str) -> dict[str, Any] | None:
    """The unchecked content of a baseline file; None where there is no file.

    Raises:
        ArtifactError: it is not JSON, or belongs to another model.
    """
    if not path.exists():
        return None
    try:
        baseline = artifacts.read_json(path)
    except ArtifactError as error:
        raise ArtifactError(f"{str(error).rpartition('; ')[0]}; {_restore(model)}") from None
    if not isinstance(baseline, dict) or baseline.get("model") != model:
        raise ArtifactError(
            f"baselines/{model}.json: is not the baseline of {model}; {_restore(model)}"
        )
    return baseline


def _restore(model: str) -> str:
    return f"`git checkout baselines/{model}.json` restores it"


def _content(
    found: Files, judged: Judged, rules: Sequence[Rule], origin: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "model": judged.model,
        "preset": judged.preset,
        "passed": judged.verdict.passed,
        **origin,
        "scores_sha256": artifacts.file_digest(found.scores),
        "baseline_sha256": artifacts.file_digest(found.baseline)
        if found.baseline.exists()
        else None,
        "rules": [
            rule._asdict() | {"floors": list(rule.floors), "ceilings": list(rule.ceilings)}
            for rule in rules
        ],
        "lines": [line._asdict() for line in judged.verdict.lines],
    }


def _rules(path: Path, stored: Mapping[str, Any]) -> tuple[Rule, ...]:
    try:
        return TypeAdapter(tuple[Rule, ...]).validate_python(stored.get("rules"))
    except ValidationError:
        raise ArtifactError(
            f"{path.parent.name}/{path.name}: has no rules; run `dvc repro` to write it anew"
        ) from None


def table(judged: Sequence[Judged]) -> str:
    """The score table that a person reads in a terminal."""
    head = ("model", "preset", "metric", "score", "baseline", "tolerance", "status")
    body = [
        (
            one.model,
            one.preset,
            line.metric,
            shown(line.value),
            shown(line.baseline),
            f"{line.tolerance:g}",
            line.status,
        )
        for one in judged
        for line in one.verdict.lines
    ]
    return _in_columns([head, *body])


def comparison_table(judged: Sequence[Judged]) -> str:
    """What a promotion would change, for a terminal: each stored score, the one at hand, and their difference."""
    head = ("model", "preset", "metric", "old", "new", "difference", "status")
    body = [
        (
            one.model,
            one.preset,
            found.metric,
            shown(found.old),
            shown(found.new),
            shown_difference(found),
            found.status,
        )
        for one in judged
        for found in one.comparisons
    ]
    return _in_columns([head, *body])


def _in_columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def shown(value: float | None) -> str:
    """A number as the tables show it."""
    return "-" if value is None else f"{value:.4f}"


def shown_difference(found: Comparison) -> str:
    """`+0.0120 ± 0.0340`: a difference to the baseline, and half its 95 % interval where that is known."""
    if found.difference is None:
        return "-"
    rounded = round(found.difference, 4)
    text = f"{rounded:+.4f}" if rounded else "0.0000"
    return text if found.half is None else f"{text} ± {found.half:.4f}"
