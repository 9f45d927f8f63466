"""trained models and baselines -> versions and aliases of registered models in MLflow."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging import verdicts
from pipeline.runtime.redaction import shown
from pipeline.storage import artifacts
from pipeline.storage.params_file import parse
from pipeline.tracking.store import Unreachable, check_reachable, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

RUN_KEY_TAG = "quatrain.run_key"
TIME_TAG = "quatrain.trained_at"
# Title of the section of a model's card that its evaluation writes.
SCORES = "## Scores"
# Alias of the version that was trained last.
CANDIDATE = "candidate"
# Alias of the version whose scores are the baseline.
CHAMPION = "champion"
# File in .state with the aliases that are set, so that the store is asked only about others.
CACHE = "aliases.json"

# Calls a method of an MLflow client, given its name and arguments.
Call = Callable[..., Any]


# Versions.


def register(call: Call, run_id: str, folder: Path, line: Mapping[str, Any]) -> None:
    """Uploads a model as a version of `line["name"]`; the youngest version becomes the candidate.

    Safe to repeat after a lost reply: the logged model and the version are found by their run.
    """
    name = line["name"]
    run = call("get_run", run_id)
    logged = _logged_model(call, run, name)
    call("log_model_artifacts", logged.model_id, str(folder))
    stored = {Path(file.path).name for file in call("list_logged_model_artifacts", logged.model_id)}
    if not stored >= {path.name for path in folder.iterdir()}:
        raise Unreachable(f"the store lacks files of model {name} that it acknowledged")
    call("finalize_logged_model", logged.model_id, "READY")
    versions = call("search_model_versions", f"name = '{name}' and run_id = '{run_id}'")
    version = versions[0] if versions else _new_version(call, run, logged, line)
    candidate = version_with_alias(partial(call, "get_model_version_by_alias"), name, CANDIDATE)
    if candidate is None or int(candidate.tags.get(TIME_TAG, 0)) <= line["time"]:
        call("set_registered_model_alias", name, CANDIDATE, version.version)
        candidate = version_with_alias(partial(call, "get_model_version_by_alias"), name, CANDIDATE)
        if candidate is None or candidate.version != version.version:
            raise Unreachable(f"the store lacks an alias of model {name} that it acknowledged")
        if line.get("card"):
            call("update_registered_model", name, line["card"])


def describe(call: Call, run_id: str, name: str, scores: str) -> None:
    """Puts the scores of a run into the card of its version, and into that of the registered model
    if the version is its candidate.

    A run without a version, such as one that another store had, is left alone.
    """
    versions = call("search_model_versions", f"name = '{name}' and run_id = '{run_id}'")
    if not versions:
        return
    card = with_scores(versions[0].description or "", scores)
    call("update_model_version", name, versions[0].version, card)
    candidate = version_with_alias(partial(call, "get_model_version_by_alias"), name, CANDIDATE)
    if candidate is not None and candidate.version == versions[0].version:
        call("update_registered_model", name, card)


def with_scores(card: str, scores: str) -> str:
    """Returns a card whose section SCORES is `scores`; these alone if it has none."""
    before, title, after = card.partition(SCORES)
    if not title:
        return scores
    _, heading, rest = after.partition("\n\n## ")
    return f"{before}{scores}{heading}{rest}"


def _logged_model(call: Call, run: Any, name: str) -> Any:
    from mlflow.entities import LoggedModelOutput

    experiment = run.info.experiment_id
    run_id = run.info.run_id
    models = call("search_logged_models", [experiment], f"source_run_id = '{run_id}'")
    if models:
        return models[0]
    logged = call("create_logged_model", experiment, name, run_id, model_type="pyfunc")
    call("log_outputs", run_id, [LoggedModelOutput(logged.model_id, 0)])
    return logged


def _new_version(call: Call, run: Any, logged: Any, line: Mapping[str, Any]) -> Any:
    with ignoring("RESOURCE_ALREADY_EXISTS"):
        call("create_registered_model", line["name"])
    # A server refuses a source that belongs to neither a run nor a model.
    return call(
        "create_model_version",
        line["name"],
        logged.artifact_location,
        tags={RUN_KEY_TAG: run.data.tags[RUN_KEY_TAG], TIME_TAG: str(line["time"])},
        description=line.get("card") or None,
        await_creation_for=0,
        run_id=run.info.run_id,
        model_id=logged.model_id,
    )


def version_with_alias(get: Callable[[str, str], Any], name: str, alias: str) -> Any:
    """Returns the version that has an alias, by the client's method `get`; None if none has it."""
    with ignoring("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
        return get(name, alias)
    return None


@contextmanager
def ignoring(*codes: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if getattr(error, "error_code", None) not in codes:
            raise


# Aliases.


class Alias(NamedTuple):
    """Holds an alias of a registered model, and the run whose version should have it."""

    model: str
    name: str
    run_key: str
    # Key of a run that holds the baseline, for a store without the alias and without the run.
    fallback: str | None = None

    @property
    def label(self) -> str:
        return f"{self.model}@{self.name}"


def registered_name(model: str, preset: str) -> str:
    """Returns the name of the registered model; each preset has a model of its own."""
    return f"quatrain-{model}" if preset == "default" else f"quatrain-{model}-{preset}"


def expected_aliases(root: Path, work: Path, preset: str, models: Sequence[str]) -> list[Alias]:
    """Returns the aliases that the trained models in `work` and the baselines in `root` ask for."""
    aliases = []
    covered: Collection[str] = ()
    with suppress(ConfigError):
        covered = MODELS if preset == "default" else parse(root / "presets" / f"{preset}.yaml")
    for model in (model for model in models if model in covered):
        name = registered_name(model, preset)
        key = None
        with suppress(DataError, KeyError, TypeError):
            key = artifacts.read_json(work / "models" / model / artifacts.MANIFEST)["info"][
                "run_key"
            ]
            aliases.append(Alias(name, CANDIDATE, key))
        with suppress(DataError, ConfigError, KeyError, TypeError):
            baseline = artifacts.read_json(root / "baselines" / f"{model}.json")
            fallback = key if verdicts.check(work, model, preset).verdict.passed else None
            champion = baseline["presets"][preset]["provenance"]["run_key"]
            aliases.append(Alias(name, CHAMPION, champion, fallback))
    return aliases


def set_aliases(root: Path, aliases: Collection[Alias], refresh: bool = False) -> list[str]:
    """Sets aliases in the store of a checkout; returns a line per alias that moved or cannot.

    Neither loads mlflow nor asks the store if all aliases were set before. `refresh` asks all the
    same: an alias may be deleted there, or the run of a baseline may have arrived.

    Raises:
        Exception: any error of mlflow and its libraries; the next call tries again.
    """
    uri = resolve_uri(root)
    cache = root / ".state" / CACHE
    settled = {} if refresh else _read_cache(cache, shown(uri))
    pending = [alias for alias in aliases if settled.get(alias.label) != alias.run_key]
    if not pending:
        return []
    check_reachable(uri)
    client = open_client(uri)
    messages = []
    for alias in pending:
        is_settled, message = _set_alias(client, alias)
        if is_settled:
            settled[alias.label] = alias.run_key
        if message is not None:
            messages.append(f"{alias.label}: {message}")
    write_durably(cache, json.dumps({"uri": shown(uri), "aliases": settled}).encode())
    return messages


def _set_alias(client: Any, alias: Alias) -> tuple[bool, str | None]:
    """Returns whether an alias needs no further attempt, and a message if there is news."""
    current = version_with_alias(client.get_model_version_by_alias, alias.model, alias.name)
    version = _newest_version(client, alias.model, alias.run_key)
    if version is None and current is None and alias.fallback is not None:
        version = _newest_version(client, alias.model, alias.fallback)

    run_is_absent = f"run {alias.run_key[:12]} has no version in this store"
    if version is None and current is None:
        return False, run_is_absent
    if version is None:
        return True, f"{run_is_absent}; version {current.version} stays"
    if current is not None and current.version == version.version:
        return True, None
    client.set_registered_model_alias(alias.model, alias.name, version.version)
    return True, f"version {version.version}, run {version.tags[RUN_KEY_TAG][:12]}"


def _newest_version(client: Any, name: str, run_key: str) -> Any:
    query = f"name = '{name}' and tags.`{RUN_KEY_TAG}` = '{run_key}'"
    return max(
        client.search_model_versions(query),
        key=lambda version: int(version.version),
        default=None,
    )


def _read_cache(path: Path, uri: str) -> dict[str, str]:
    """Returns alias -> run key as set last in this store; nothing if the file is damaged."""
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        content = json.loads(read_text(path))
        return dict(content["aliases"]) if content["uri"] == uri else {}
    return {}
