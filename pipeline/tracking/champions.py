"""baselines -> the alias `champion` of registered models in MLflow: versions with the scores that
are the baselines.
"""

import json
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pipeline.judging.gate import judge
from pipeline.runtime.console import shown
from pipeline.storage.params_file import read_params
from pipeline.tracking.registry import RUN_KEY_TAG, Call, registered_name, version_with_alias
from pipeline.tracking.store import check_reachable, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

CHAMPION = "champion"
# File in .state with the champions that are set, so that the store is asked only about others.
CACHE = "aliases.json"


class Alias(NamedTuple):
    """Holds a registered model, and the run whose version should be its champion."""

    model: str
    run_key: str
    # Key of a run that holds the baseline, for a store without a champion and without the run.
    fallback: str | None = None


def expected_aliases(root: Path, work: Path, preset: str, models: Sequence[str]) -> list[Alias]:
    """Returns the champions that the baselines in `root` ask for.

    work: the folder of the trained models, which are fallbacks where they hold their baselines.
    """
    aliases = []
    for model in models:
        with suppress(DataError, KeyError, TypeError):  # no baseline, or a damaged one
            baseline = folders.read_json(root / "baselines" / f"{model}.json")
            champion = baseline["presets"][preset]["provenance"]["run_key"]
            fallback = _key_of_passed(work, model, preset)
            aliases.append(Alias(registered_name(model, preset), champion, fallback))
    return aliases


def _key_of_passed(work: Path, model: str, preset: str) -> str | None:
    with suppress(ConfigError, DataError, KeyError):
        judgement = judge(work, model, read_params(work))
        if judgement.passed and judgement.preset == preset:
            return str(judgement.learner["run_key"])
    return None


def set_aliases(root: Path, aliases: Collection[Alias], refresh: bool = False) -> list[str]:
    """Sets champions in the store of a checkout; returns a line per champion that moved or cannot.

    Neither loads mlflow nor asks the store if all were set before. `refresh` asks all the same: an
    alias may be deleted there, or the run of a baseline may have arrived.

    Raises:
        Exception: any error of mlflow and its libraries; the next call tries again.
    """
    uri = resolve_uri(root)
    cache = root / ".state" / CACHE
    settled = {} if refresh else _read_cache(cache, shown(uri))
    pending = [alias for alias in aliases if settled.get(alias.model) != alias.run_key]
    if not pending:
        return []
    check_reachable(uri)
    call = open_client(uri).call
    messages = []
    for alias in pending:
        is_settled, message = _set_champion(call, alias)
        if is_settled:
            settled[alias.model] = alias.run_key
        if message:
            messages.append(f"{alias.model}@{CHAMPION}: {message}")
    write_durably(cache, json.dumps({"uri": shown(uri), "aliases": settled}).encode())
    return messages


def _set_champion(call: Call, alias: Alias) -> tuple[bool, str]:
    """Returns whether a champion needs no further attempt, and what is new, or ""."""
    current = version_with_alias(call, alias.model, CHAMPION)
    key = alias.run_key
    version = _version_of_key(call, alias.model, key)
    if version is None:
        absent = f"run {key[:12]} has no version in this store"
        if current is not None:
            return True, f"{absent}; version {current} stays"
        if alias.fallback is None:
            return False, absent
        key = alias.fallback
        version = _version_of_key(call, alias.model, key)
        if version is None:
            return False, absent
    if version == current:
        return True, ""
    call("set_registered_model_alias", alias.model, CHAMPION, version)
    return True, f"version {version}, run {key[:12]}"


def _version_of_key(call: Call, name: str, run_key: str) -> str | None:
    query = f"name = '{name}' and tags.`{RUN_KEY_TAG}` = '{run_key}'"
    versions = [version.version for version in call("search_model_versions", query)]
    return str(max(versions, key=int)) if versions else None


def _read_cache(path: Path, uri: str) -> dict[str, str]:
    """Returns model -> run key of its champion as set last in this store; nothing if the file is
    damaged.
    """
    with suppress(DataError, KeyError, TypeError, ValueError):
        content = folders.read_json(path)
        return dict(content["aliases"]) if content["uri"] == uri else {}
    return {}
