"""learners and baselines at hand -> aliases: `candidate` is what was trained, `champion` what the baseline holds."""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import verdicts
from pipeline.runtime.errors import ArtifactError, ConfigError
from pipeline.storage import artifacts
from pipeline.storage.artifacts import MANIFEST
from pipeline.storage.atomic_write import write_durably
from pipeline.storage.params_file import parse
from pipeline.tracking.journal import redact
from pipeline.tracking.shipper import resolve_uri
from pipeline.tracking.store import knock, open_client
from pipeline.tracking.versions import CANDIDATE, CHAMPION, RUN_KEY_TAG, holder
from quatrain.registry import MODELS

NOTE = "aliases.json"
"""In .state: the aliases that were set last, so that nothing is asked of the store while they are wanted."""


class Wanted(NamedTuple):
    """An alias of a registered model, and the run whose version is to bear it.

    stand_in: a run that held the baseline, for a store that has neither the alias nor the baseline's own run.
    """

    name: str
    alias: str
    run_key: str
    stand_in: str | None = None


def name_of(model: str, preset: str) -> str:
    """What a model is registered as; each preset has versions of its own."""
    return f"quatrain-{model}" if preset == "default" else f"quatrain-{model}-{preset}"


def wanted(root: Path, work: Path, preset: str, models: Sequence[str]) -> list[Wanted]:
    """What the learners and baselines at hand say; nothing of a model with neither, or that a preset leaves alone."""
    found = []
    for model in (model for model in models if model in _changed(root, preset)):
        name, key = name_of(model, preset), None
        with suppress(ArtifactError, KeyError, TypeError):
            key = artifacts.read_json(work / "models" / model / MANIFEST)["info"]["run_key"]
            found.append(Wanted(name, CANDIDATE, key))
        with suppress(ArtifactError, ConfigError, KeyError, TypeError):
            baseline = artifacts.read_json(root / "baselines" / f"{model}.json")
            held = verdicts.check(work, model, preset).verdict.passed
            origin = baseline["presets"][preset]["provenance"]
            found.append(Wanted(name, CHAMPION, origin["run_key"], key if held else None))
    return found


def _changed(root: Path, preset: str) -> Collection[str]:
    """The models that a preset has a section for; none where it was taken away."""
    if preset == "default":
        return MODELS
    with suppress(ConfigError):
        return parse(root / "presets" / f"{preset}.yaml")
    return ()


def crown(root: Path, aliases: Sequence[Wanted], anew: bool = False) -> list[str]:
    """Set the aliases in the tracking store of a checkout; a line for each that was moved or has no version there.

    Nothing is asked of the store, and no mlflow loaded, where all were set before, unless `anew`: somebody may have
    taken them away, or the baseline's own run may have arrived.

    Raises:
        Exception: whatever mlflow and its libraries raise; nothing is noted then, and the next call tries again.
    """
    uri, note = resolve_uri(root), root / ".state" / NOTE
    known = {} if anew else _noted(note, redact(uri))
    missing = [one for one in aliases if known.get(f"{one.name}@{one.alias}") != one.run_key]
    if not missing:
        return []
    knock(uri)
    client = open_client(uri)
    told = []
    for one in missing:
        where, held = (
            f"{one.name}@{one.alias}",
            holder(client.get_model_version_by_alias, one.name, one.alias),
        )
        version = _version_for(client, one, alone=held is None)
        if version is None:
            stays = "" if held is None else f"; version {held.version} stays"
            told.append(f"{where}: run {one.run_key[:12]} has no version in this store{stays}")
        elif held is None or held.version != version.version:
            client.set_registered_model_alias(one.name, one.alias, version.version)
            told.append(f"{where}: version {version.version}, run {version.tags[RUN_KEY_TAG][:12]}")
        if version is not None or held is not None:
            known[where] = one.run_key
    write_durably(note, json.dumps({"uri": redact(uri), "aliases": known}).encode())
    return told


def _version_for(client: Any, one: Wanted, alone: bool) -> Any:
    """The newest version of the run, or else, where nobody bears the alias, of its stand-in; None without."""
    for key in (one.run_key, *((one.stand_in,) if one.stand_in and alone else ())):
        found = client.search_model_versions(
            f"name = '{one.name}' and tags.`{RUN_KEY_TAG}` = '{key}'"
        )
        if found:
            return max(found, key=lambda version: int(version.version))
    return None


def _noted(path: Path, uri: str) -> dict[str, str]:
    """Alias -> run key, as set last in this very store."""
    try:
        note = json.loads(path.read_bytes())
        return dict(note["aliases"]) if note["uri"] == uri else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
