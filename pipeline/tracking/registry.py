"""trained models and baselines -> versions and aliases of registered models in MLflow."""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging.gate import judge
from pipeline.runtime.redaction import shown
from pipeline.storage import artifacts
from pipeline.storage.params_file import read_params
from pipeline.tracking.store import check_reachable, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.storage.atomic_write import write_durably

RUN_KEY_TAG = "quatrain.run_key"
TIME_TAG = "quatrain.trained_at"
# Title of the section of a model's card that its evaluation writes.
SCORES = "## Scores"
# Alias of the version that was trained last.
CANDIDATE = "candidate"
# Alias of the version whose scores are the baseline.
CHAMPION = "champion"
# File in .state with the champions that are set, so that the store is asked only about others.
CACHE = "aliases.json"

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]


def registered_name(model: str, preset: str) -> str:
    """Returns the name of the registered model; each preset has a model of its own."""
    return f"quatrain-{model}" if preset == "default" else f"quatrain-{model}-{preset}"


# Versions: a training registers one, its evaluation adds the scores to its card.


def register(call: Call, run_id: str, folder: Path, line: Mapping[str, Any]) -> None:
    """Uploads a model as a version of `line["name"]`; the version that was trained last is the
    candidate, and its card that of the registered model.

    Safe to repeat after a lost reply: the logged model and the version are found by their run.
    """
    name = line["name"]
    run = call("get_run", run_id)
    logged = _logged_model(call, run, name)
    call("log_model_artifacts", logged.model_id, str(folder))
    call("finalize_logged_model", logged.model_id, "READY")
    if not call("search_registered_models", f"name = '{name}'"):
        call("create_registered_model", name)
    if _version_of_run(call, name, run_id) is None:
        # A server refuses a source that belongs to neither a run nor a model.
        call(
            "create_model_version",
            name,
            logged.artifact_location,
            tags={RUN_KEY_TAG: run.data.tags[RUN_KEY_TAG], TIME_TAG: str(line["time"])},
            description=line.get("card") or None,
            await_creation_for=0,
            run_id=run_id,
            model_id=logged.model_id,
        )
    versions = call("search_model_versions", f"name = '{name}'")
    latest = max(versions, key=_trained_at)
    call("set_registered_model_alias", name, CANDIDATE, latest.version)
    call("update_registered_model", name, latest.description)


def _logged_model(call: Call, run: Any, name: str) -> Any:
    from mlflow.entities import LoggedModelOutput

    experiment, run_id = run.info.experiment_id, run.info.run_id
    models = call("search_logged_models", [experiment], f"source_run_id = '{run_id}'")
    if models:
        return models[0]
    logged = call("create_logged_model", experiment, name, run_id, model_type="pyfunc")
    call("log_outputs", run_id, [LoggedModelOutput(logged.model_id, 0)])
    return logged


def _trained_at(version: Any) -> tuple[int, int]:
    return int(version.tags.get(TIME_TAG, 0)), int(version.version)


def _version_of_run(call: Call, name: str, run_id: str) -> Any:
    versions = call("search_model_versions", f"name = '{name}' and run_id = '{run_id}'")
    return versions[0] if versions else None


def describe(call: Call, run_id: str, name: str, scores: str) -> None:
    """Puts the scores of a run into the card of its version, and into that of the registered model
    if the version is its candidate.

    A run without a version, such as one that another store had, is left alone.
    """
    version = _version_of_run(call, name, run_id)
    if version is None:
        return
    before, _, after = (version.description or "").partition(SCORES)
    _, heading, rest = after.partition("\n\n## ")
    card = f"{before}{scores}{heading}{rest}"
    call("update_model_version", name, version.version, card)
    if version_with_alias(call, name, CANDIDATE) == str(version.version):
        call("update_registered_model", name, card)


def version_with_alias(call: Call, name: str, alias: str) -> str | None:
    """Returns the number of the version that has an alias; None if none has it."""
    models = call("search_registered_models", f"name = '{name}'")
    version = models[0].aliases.get(alias) if models else None
    return None if version is None else str(version)


# Champions: the versions whose scores are the baselines.


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
            baseline = artifacts.read_json(root / "baselines" / f"{model}.json")
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
        content = artifacts.read_json(path)
        return dict(content["aliases"]) if content["uri"] == uri else {}
    return {}
