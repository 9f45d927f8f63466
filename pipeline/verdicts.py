"""scores.json, baselines/MODEL.json -> verdict.json, and whether a verdict still belongs to both."""

from pathlib import Path
from typing import Any, NamedTuple

from pipeline import artifacts
from pipeline.artifacts import ArtifactError
from quatrain.baselines import BaselineError, Line, Verdict, judge


class Judged(NamedTuple):
    """A model's verdict under a preset, and why it cannot be trusted if it cannot."""

    model: str
    preset: str
    verdict: Verdict
    provenance: dict[str, Any]


def paths(root: Path, model: str) -> tuple[Path, Path, Path]:
    """scores, baseline and verdict of a model."""
    reports = root / "reports" / model
    return reports / "scores.json", root / "baselines" / f"{model}.json", reports / "verdict.json"


def write(root: Path, model: str, preset: str) -> Judged:
    """Judge the scores at hand and store the verdict beside them, with the hashes of what it judged."""
    scores, baseline, out = paths(root, model)
    judged = now(root, model, preset)
    artifacts.write_json(
        out,
        {
            "model": model,
            "preset": preset,
            "passed": judged.verdict.passed,
            "scores_sha256": artifacts.file_digest(scores),
            "baseline_sha256": artifacts.file_digest(baseline) if baseline.exists() else None,
            "lines": [line._asdict() for line in judged.verdict.lines],
        },
    )
    return judged


def now(root: Path, model: str, preset: str) -> Judged:
    """Judge the scores at hand against the baseline at hand.

    Raises:
        ArtifactError: one of the two cannot be read.
    """
    scores, baseline, _ = paths(root, model)
    stored = artifacts.read_json(baseline) if baseline.exists() else None
    try:
        verdict = judge(artifacts.read_json(scores), stored, preset)
    except BaselineError as error:
        raise ArtifactError(f"baselines/{baseline.name}: {error}; `git checkout` restores it") from None
    entry = (stored or {}).get("presets", {}).get(preset, {})
    return Judged(model, preset, verdict, entry.get("provenance", {}))


def check(root: Path, model: str) -> Judged:
    """The stored verdict, broken where it is missing or belongs to other scores or another baseline."""
    scores, baseline, out = paths(root, model)
    if not out.exists() or not scores.exists():
        return _untrusted(model, "missing", f"reports/{model} holds no verdict; run `dvc repro`")
    stored = artifacts.read_json(out)
    judged = now(root, model, str(stored.get("preset")))
    expected = artifacts.file_digest(baseline) if baseline.exists() else None
    if stored.get("scores_sha256") != artifacts.file_digest(scores):
        return _untrusted(model, "missing", "the verdict belongs to other scores; run `dvc repro`")
    if stored.get("baseline_sha256") != expected:
        return _untrusted(model, "missing", f"baselines/{model}.json changed since the verdict; run `dvc repro`")
    if stored.get("passed") != judged.verdict.passed:
        return _untrusted(model, "missing", "the verdict was altered; run `dvc repro --force`")
    return judged


def _untrusted(model: str, status: Any, why: str) -> Judged:
    return Judged(model, "-", Verdict(False, (Line("-", status, None, None, "-", 0.0, why),)), {})


def table(judged: list[Judged]) -> str:
    """The score table that a person reads in a terminal."""
    head = ("model", "preset", "metric", "score", "baseline", "tolerance", "status")
    body = [
        (
            one.model,
            one.preset,
            line.metric,
            _number(line.value),
            _number(line.baseline),
            f"{line.tolerance:g}",
            line.status,
        )
        for one in judged
        for line in one.verdict.lines
    ]
    widths = [max(len(row[i]) for row in (head, *body)) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in (head, *body)
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
