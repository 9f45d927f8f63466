"""scores, verdicts and plots of all models -> reports/report.md: one page for a person and for CI."""

import sys
from pathlib import Path

from pipeline import artifacts, verdicts
from pipeline.durable import write_durably
from pipeline.params import read_params
from pipeline.stage import guarded
from quatrain.registry import MODELS


def section(root: Path, model: str, preset: str) -> str:
    """A model's part of the page: judged metrics between floors and ceilings, all scores, pictures."""
    scores_path, baseline_path, _ = verdicts.paths(root, model)
    judged = verdicts.check(root, model)
    scores = artifacts.read_json(scores_path)
    stored = artifacts.read_json(baseline_path) if baseline_path.exists() else {}
    metrics = stored.get("presets", {}).get(preset, {}).get("metrics", {})
    run_key = artifacts.load(root / "models" / model).info["run_key"]
    rows = [
        "| metric | score | baseline | tolerance | goal | floors | ceilings | status |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for line in judged.verdict.lines:
        entry = metrics.get(line.metric, {})
        rows.append(
            f"| {line.metric} | {_number(line.value)} | {_number(line.baseline)} | {line.tolerance:g} | "
            f"{_number(entry.get('goal'))} | {_names(entry.get('floors'))} | {_names(entry.get('ceilings'))} | {line.status} |"
        )
    interval = (
        f" 95 % interval over seeds: {_number(scores['cosine_mean_low'])} .. {_number(scores['cosine_mean_high'])}."
        if "cosine_mean_low" in scores
        else ""
    )
    pictures = sorted((root / "reports" / model / "plots").glob("*.png"))
    return "\n".join(
        [
            f"## {model}: {'passed' if judged.verdict.passed else 'BROKEN'}",
            "",
            *rows,
            "",
            *(f"* {line.why}" for line in judged.verdict.lines),
            "",
            f"Run: tag `quatrain.run_key = {run_key}` in MLflow.{interval}",
            "",
            "<details><summary>all scores</summary>",
            "",
            "| metric | score |",
            "|---|---|",
            *(f"| {name} | {_number(value)} |" for name, value in sorted(scores.items())),
            "",
            "</details>",
            "",
            *(f"![{picture.stem}]({model}/plots/{picture.name})" for picture in pictures),
            "",
        ]
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _names(values: dict[str, float] | None) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in (values or {}).items())


def report() -> None:
    """Write the page."""
    root = Path.cwd()
    preset = read_params(root).preset
    sections = [section(root, model, preset) for model in MODELS]
    head = f"# Report\n\nPreset `{preset}`. Scores are judged against `baselines/`; `python -m pipeline.gate` repeats the judgement.\n"
    write_durably(root / "reports" / "report.md", "\n".join([head, *sections]).encode())


if __name__ == "__main__":
    sys.exit(guarded("report", report))
