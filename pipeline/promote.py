"""scores at hand -> baselines/MODEL.json: the only writer of baselines."""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipeline import artifacts, repro, verdicts
from pipeline.artifacts import ArtifactError
from pipeline.gate import known_models
from pipeline.params import ConfigError, read_params
from pipeline.run import git
from pipeline.verdicts import Untrusted
from quatrain.baselines import PASSED, SCHEMA, Rule, entry_of, judge
from quatrain.registry import MODELS

CODE = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")


class Refused(Exception):
    """Scores that must not become a baseline, or only with a reason. Exit code 4."""


def promote(root: Path, model: str, preset: str, why: str | None) -> str:
    """Store the scores of the last run under this preset as its baseline; what was stored, in one line.

    Raises:
        Refused: a score is missing, or worse than the baseline, a goal or a floor and no reason was given.
        Untrusted: nothing was evaluated, or scores or learner changed after the verdict.
        ArtifactError: a file cannot be read.
    """
    work = repro.workspace_of(root, preset)
    stored = verdicts.stored_verdict(work, model, preset)
    if stored.get("learner") != artifacts.folder_digest(work / "models" / model):
        raise Untrusted("stale", f"models/{model} changed after the verdict; {verdicts.again(preset)}")
    scores, rules = verdicts.read_scores(verdicts.files(work, model).scores), verdicts.rules_of(model, preset)
    refuse_holes(model, scores, rules)
    found = verdicts.files(work, model)._replace(baseline=verdicts.files(root, model).baseline)
    verdicts.judge_files(found, model, preset, rules)  # refuses a damaged baseline
    baseline = verdicts.read_baseline(found.baseline, model) or {"schema": SCHEMA, "model": model, "presets": {}}
    entry = {
        "metrics": {rule.metric: entry_of(rule, scores) for rule in rules},  # type: ignore[arg-type]
        "provenance": provenance(root, work, model, preset, why),
    }
    promoted = baseline | {"presets": baseline["presets"] | {preset: entry}}
    objections = worse(scores, baseline, promoted, rules, preset)
    if objections and why is None:
        raise Refused(f"{model} is not promoted: {'; '.join(objections)}; --force --why '...' stores it all the same")
    artifacts.write_json(found.baseline, promoted)
    key = entry["provenance"]["run_key"][:12]
    return f"baselines/{model}.json: preset {preset} now holds the {len(rules)} scores of run {key}; commit it"


def refuse_holes(model: str, scores: Mapping[str, float | None], rules: Sequence[Rule]) -> None:
    """Refuse scores without a finite number for each metric, floor and ceiling that the model judges."""
    needed = [name for rule in rules for name in (rule.metric, *rule.floors, *rule.ceilings)]
    holes = sorted({name for name in needed if scores.get(name) is None})
    if holes:
        raise Refused(f"{model} is not promoted: no finite score for {', '.join(holes)}; a baseline needs one")


def worse(
    scores: Mapping[str, float | None],
    baseline: Mapping[str, Any],
    promoted: Mapping[str, Any],
    rules: Sequence[Rule],
    preset: str,
) -> list[str]:
    """What the old baseline would call broken, and what the new one would by its goals and floors."""
    lines = (*judge(scores, baseline, rules, preset).lines, *judge(scores, promoted, rules, preset).lines)
    return list(dict.fromkeys(line.why for line in lines if line.status not in (*PASSED, "no baseline")))


def provenance(root: Path, work: Path, model: str, preset: str, why: str | None) -> dict[str, Any]:
    """Which run the scores come from, when, on what, and why they were stored if they were worse."""
    info = artifacts.load(work / "models" / model).info
    changed = git(root, "status", "--porcelain", "--", *CODE)
    return {
        "run_key": info["run_key"],
        "commit": (git(root, "rev-parse", "--short=12", "HEAD") or "none") + ("+changes" if changed else ""),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": info["settings"]["device"],
        "cpu": info["settings"]["cpu"],
        "seeds": getattr(read_params(root, preset), model).seeds,
        "why": why,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.promote", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named")
    parser.add_argument("--preset", default="default", help="whose last run to promote")
    parser.add_argument("--force", action="store_true", help="store scores that are worse, too; needs --why")
    parser.add_argument("--why", help="the reason, kept in the provenance")
    chosen = parser.parse_args(argv)
    if chosen.force != bool(chosen.why):
        parser.error("--force and --why '...' go together")
    root = Path.cwd()
    try:
        models = known_models(chosen.models)
        read_params(root, chosen.preset)
        for model in models:
            print(promote(root, model, chosen.preset, chosen.why), flush=True)
        return repro.judge_again(root, chosen.preset, models)
    except ConfigError as error:
        return _said(error, 2)
    except ArtifactError as error:
        return _said(error, 3)
    except (Refused, Untrusted) as error:
        return _said(error, 4)


def _said(why: Exception, code: int) -> int:
    print(f"promote: {why} [exit {code}]", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
