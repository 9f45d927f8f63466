"""scores at hand -> baselines/MODEL.json: the only writer of baselines."""

import argparse
import datetime
import subprocess
import sys
from pathlib import Path
from typing import Any

from pipeline import artifacts, verdicts
from pipeline.artifacts import ArtifactError
from pipeline.params import ConfigError, read_params
from pipeline.repro import workspace_of
from quatrain.baselines import SCHEMA, entry_of
from quatrain.registry import MODELS, room

KEEP = ("ok", "better", "no baseline")


def promote(root: Path, model: str, preset: str, why: str | None) -> str:
    """Store the scores of the last run under this preset as its baseline; what was stored, in one line.

    Raises:
        ArtifactError: there are no scores, or they are worse than the baseline and no reason was given.
    """
    work = workspace_of(root, preset)
    judged = verdicts.check(work, model)
    first = judged.verdict.lines[0]
    if first.status == "missing" and first.metric == "-":
        raise ArtifactError(first.why)
    worse = [line.why for line in judged.verdict.lines if line.status not in KEEP]
    if worse and why is None:
        raise ArtifactError(f"not promoted: {'; '.join(worse)}; use --force --why '...' to store it all the same")
    scores = artifacts.read_json(verdicts.paths(work, model)[0])
    config = getattr(read_params(work), model)
    path = root / "baselines" / f"{model}.json"
    stored = artifacts.read_json(path) if path.exists() else {"schema": SCHEMA, "model": model, "presets": {}}
    stored["presets"][preset] = {
        "metrics": {gated.metric: entry_of(gated, scores, preset) for gated in room(model, "evaluate").GATED},
        "provenance": provenance(work, model, config, why),
    }
    artifacts.write_json(path, stored)
    return f"baselines/{model}.json: preset {preset} now holds the scores of run {stored['presets'][preset]['provenance']['run_key'][:12]}"


def provenance(root: Path, model: str, config: Any, why: str | None) -> dict[str, Any]:
    """Which run the scores come from, when, on what, and why they were stored if they were worse."""
    info = artifacts.load(root / "models" / model).info
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, cwd=root)
    return {
        "run_key": info["run_key"],
        "commit": commit.stdout.strip() or "none",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": info["settings"]["device"],
        "cpu": info["settings"]["cpu"],
        "seeds": config.seeds,
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
    try:
        for model in chosen.models or MODELS:
            print(promote(Path.cwd(), model, chosen.preset, chosen.why))
    except ConfigError as error:
        print(f"promote: {error} [exit 2]", file=sys.stderr)
        return 2
    except ArtifactError as error:
        print(f"promote: {error} [exit 4]", file=sys.stderr)
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main())
