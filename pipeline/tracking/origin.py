"""checkout, params -> name, tags and parent of a run: where its results come from."""

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.runtime.console import shown
from pipeline.runtime.devices import settings
from pipeline.runtime.git import NONE, UNKNOWN, WRITTEN, commit, git, has_changes, user
from pipeline.runtime.stage import Stage
from pipeline.tracking.records import Parent
from quatrain.params import Params
from quatrain.storage.folders import digest_of

DESCRIPTION_TAG = "mlflow.note.content"


# Of its params and its stage.


def pipeline_run(root: Path, params: Params) -> Parent:
    """Returns the run of everything that is made with these params and this commit."""
    key = digest_of({"params": params_digest(params), "commit": commit(root)})
    return Parent(key, title(params))


def title(params: Params) -> str:
    """Returns the name of DVC's experiment, or else preset and date."""
    experiment = os.environ.get("DVC_EXP_NAME")
    return experiment or f"{params.preset} {datetime.now():%Y-%m-%d %H:%M}"


def tags(stage: Stage) -> dict[str, str]:
    versions = settings(stage.params, stage.framework)
    return {
        **{f"quatrain.{name}": value for name, value in versions.items()},
        **origin_tags(stage.root, stage.params),
        "mlflow.source.name": f"pipeline/{stage.verb}.py",
        "quatrain.model": stage.model,
        "dvc.stage": stage.name,
    }


def origin_tags(root: Path, params: Params) -> dict[str, str]:
    return {
        "quatrain.preset": params.preset,
        "quatrain.seed": str(params.seed),
        "quatrain.params": params_digest(params)[:16],
        **code_tags(root),
    }


def params_digest(params: Params) -> str:
    return digest_of(params.model_dump(mode="json", exclude={"checkpoint_seconds", "drift"}))


# Of its checkout.


def code_tags(root: Path) -> dict[str, str]:
    """Returns commit, branch, repository and user, under the names that MLflow's UI shows too.

    What git refuses to tell is `unknown`, and its reason is said.
    """
    revision = commit(root)
    dirty = is_dirty(root)
    tags = {
        "git.commit": revision,
        "git.dirty": UNKNOWN if dirty is None else str(dirty).lower(),
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": "" if revision in (NONE, UNKNOWN) else revision,
        "mlflow.source.git.branch": git(root, "branch", "--show-current"),
        "mlflow.source.git.repoURL": shown(git(root, "config", "remote.origin.url")),
        "mlflow.user": user(),
    }
    return {name: text for name, text in tags.items() if text}


def is_dirty(root: Path) -> bool | None:
    """Returns whether tracked files changed, those aside that the pipeline itself writes; None
    where git does not tell.
    """
    return has_changes(root, [":/", *(f":(top,exclude){path}" for path in WRITTEN)])


def flatten(section: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns nested params under dotted names: `train.learning_rate` -> '0.001'."""
    flat: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)
    return flat
