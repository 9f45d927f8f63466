"""params, judgements -> the description that MLflow's UI shows above a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pipeline.judging.render import markdown, summary
from pipeline.runtime.git import UNKNOWN, commit, git
from pipeline.storage.params_file import overlaid, parse
from pipeline.tracking.registry import SCORES
from quatrain.judgement import Judgement
from quatrain.params import Params
from quatrain.registry import MODELS

DESCRIPTION_TAG = "mlflow.note.content"
# Changed params that are listed.
MOST_CHANGES = 20


def description(
    root: Path, params: Params, model: str | None = None, judgements: Sequence[Judgement] = ()
) -> str:
    """Returns Markdown: the verdict, the judged scores, and what params.yaml changes.

    model: whose params and those that all share; None for all of them.
    """
    parts = [summary(judgements), markdown(judgements)] if judgements else []
    return "\n\n".join([*parts, changes(root, params.preset, model)])


def scores_section(judgement: Judgement) -> str:
    """Returns the section of a model's card that an evaluation writes."""
    title = f"{SCORES} (preset {judgement.preset})"
    return "\n\n".join([title, summary([judgement]), markdown([judgement])])


def changes(root: Path, preset: str, model: str | None) -> str:
    """Returns a list of the params that differ from the last commit's, with its values."""
    source = "params.yaml" if preset == "default" else f"params.yaml with presets/{preset}.yaml"
    committed = committed_params(root, preset)
    if committed is None:
        reason = "git does not tell it" if commit(root) == UNKNOWN else "no commit has them"
        return f"The params cannot be compared: {reason}."
    old, new = flatten(committed), flatten(parse(root / "params.yaml"))
    others = tuple(f"{other}." for other in MODELS if model not in (None, other))
    lines = [
        f"* `{name}`: {old.get(name, 'absent')} -> {new.get(name, 'absent')}"
        for name in {**old, **new}
        if old.get(name) != new.get(name) and not name.startswith(others)
    ]
    if not lines:
        return f"Params: those of the commit's {source}."
    if len(lines) > MOST_CHANGES:
        lines[MOST_CHANGES:] = [f"* and {len(lines) - MOST_CHANGES} more"]
    return "\n".join([f"Params changed from the commit's {source}:", "", *lines])


def committed_params(root: Path, preset: str) -> Mapping[str, Any] | None:
    """Returns params.yaml of the last commit with its preset; None if there is none."""
    params = committed_yaml(root, "params.yaml")
    if params is None or preset == "default":
        return params
    overlay = committed_yaml(root, f"presets/{preset}.yaml")
    return None if overlay is None else overlaid(params, overlay)


def committed_yaml(root: Path, path: str) -> Mapping[str, Any] | None:
    try:
        content = YAML(typ="safe", pure=True).load(git(root, "show", f"HEAD:{path}"))
    except YAMLError:
        return None
    return content if isinstance(content, dict) else None


def flatten(section: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Returns nested params under dotted names: `train.learning_rate` -> '0.001'."""
    flat: dict[str, str] = {}
    for name, value in section.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = str(value)
    return flat
