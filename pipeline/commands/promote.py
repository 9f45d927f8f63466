"""scores at hand -> baselines/MODEL.json and the alias `champion`: the only writer of baselines."""

import argparse
import datetime
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.commands import repro
from pipeline.commands.gate import known_models
from pipeline.judging import verdicts
from pipeline.judging.verdicts import Judged, StaleVerdict
from pipeline.runtime.errors import ArtifactError, ConfigError, PipelineError
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.tracking.run import git
from quatrain.baselines import PASSED, SCHEMA, Rule, entry_of, judge
from quatrain.registry import MODELS

CODE = ("src", "pipeline", "inputs", "presets", "params.yaml", "dvc.yaml")


class PromotionRefused(PipelineError):
    """Says why scores may not become a baseline, or only with a reason."""

    exit_code = 4


class Promotion(NamedTuple):
    """A baseline file as it would be, and how the scores at hand compare with what it holds now."""

    path: Path
    baseline: dict[str, Any]
    judged: Judged
    run_key: str

    @property
    def told(self) -> str:
        """What was stored, in one line."""
        held = f"{len(self.judged.verdict.lines)} scores of run {self.run_key[:12]}"
        return f"baselines/{self.path.name}: preset {self.judged.preset} now holds the {held}; commit it"


def promote(root: Path, models: Sequence[str], preset: str, why: str | None) -> None:
    """Store the scores of each model's last run under this preset as its baseline; of all of them or of none.

    Raises:
        PromotionRefused: a score is missing, or worse than the baseline, a goal or a floor and no reason was given.
        StaleVerdict: nothing was evaluated, or scores or learner changed after the verdict.
        ArtifactError: a file cannot be read.
    """
    promotions = [promotion(root, model, preset, why) for model in models]
    print(verdicts.comparison_table([one.judged for one in promotions]))
    objections = [text for one in promotions for text in worse(one)]
    if objections and why is None:
        raise PromotionRefused(
            f"nothing is promoted: {'; '.join(objections)}; --force --why '...' stores it all the same"
        )
    for one in promotions:
        artifacts.write_json(one.path, one.baseline)
        print(one.told, flush=True)


def promotion(root: Path, model: str, preset: str, why: str | None) -> Promotion:
    """The baseline that a model's last run would make.

    Raises:
        PromotionRefused, StaleVerdict, ArtifactError: as of `promote`.
    """
    work = repro.workspace_of(root, preset)
    verdicts.stored_verdict(
        work, model, preset, read_params(root, preset)
    )  # refuses scores of anything else
    rules = verdicts.rules_of(model, preset)
    found = verdicts.files(work, model)._replace(baseline=verdicts.files(root, model).baseline)
    judged = verdicts.judge_files(found, model, preset, rules)
    refuse_holes(model, judged.scores, rules)
    baseline = verdicts.read_baseline(found.baseline, model) or {
        "schema": SCHEMA,
        "model": model,
        "presets": {},
    }
    origin = provenance(root, work, model, preset, why)
    metrics = {rule.metric: entry_of(rule, judged.scores) for rule in rules}  # type: ignore[arg-type]
    presets = baseline["presets"] | {preset: {"metrics": metrics, "provenance": origin}}
    return Promotion(found.baseline, baseline | {"presets": presets}, judged, origin["run_key"])


def refuse_holes(model: str, scores: Mapping[str, float | None], rules: Sequence[Rule]) -> None:
    """Refuse scores without a finite number for each metric, floor and ceiling that the model judges."""
    needed = [name for rule in rules for name in (rule.metric, *rule.floors, *rule.ceilings)]
    holes = sorted({name for name in needed if scores.get(name) is None})
    if holes:
        raise PromotionRefused(
            f"{model} is not promoted: no finite score for {', '.join(holes)}; a baseline needs one"
        )


def worse(one: Promotion) -> list[str]:
    """What the old baseline calls broken, and what the new one would by its goals and floors."""
    model, preset = one.judged.model, one.judged.preset
    after = judge(one.judged.scores, one.baseline, verdicts.rules_of(model, preset), preset)
    lines = (*one.judged.verdict.lines, *after.lines)
    return list(
        dict.fromkeys(
            f"{model}: {line.why}" for line in lines if line.status not in (*PASSED, "no baseline")
        )
    )


def provenance(root: Path, work: Path, model: str, preset: str, why: str | None) -> dict[str, Any]:
    """Which run the scores come from, when, on what, and why they were stored if they were worse."""
    info = artifacts.load(work / "models" / model).info
    changed = git(root, "status", "--porcelain", "--", *CODE)
    return {
        "run_key": info["run_key"],
        "commit": (git(root, "rev-parse", "--short=12", "HEAD") or "none")
        + ("+changes" if changed else ""),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": info["settings"]["device"],
        "cpu": info["settings"]["cpu"],
        "seeds": getattr(read_params(root, preset), model).seeds,
        "why": why,
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.commands.promote", description=__doc__
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help=f"all of {', '.join(MODELS)} if none is named"
    )
    parser.add_argument("--preset", default="default", help="whose last run to promote")
    parser.add_argument(
        "--force", action="store_true", help="store scores that are worse, too; needs --why"
    )
    parser.add_argument("--why", help="the reason, kept in the provenance")
    parser.add_argument(
        "--keep-champion",
        action="store_true",
        help="leave that alias to `make sync`, after a merge",
    )
    chosen = parser.parse_args(argv)
    if chosen.force != bool(chosen.why):
        parser.error("--force and --why '...' go together")
    root = Path.cwd()
    try:
        models = known_models(chosen.models)
        read_params(root, chosen.preset)
        promote(root, models, chosen.preset, chosen.why)
        return repro.judge_again(root, chosen.preset, models, crowned=not chosen.keep_champion)
    except ConfigError as error:
        return _said(error, 2)
    except ArtifactError as error:
        return _said(error, 3)
    except (PromotionRefused, StaleVerdict) as error:
        return _said(error, 4)


def _said(why: Exception, code: int) -> int:
    print(f"promote: {why} [exit {code}]", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
