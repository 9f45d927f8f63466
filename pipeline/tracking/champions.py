"""baselines -> the alias `champion` of registered models in MLflow: versions with the scores that
are the baselines.
"""

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.judging.baseline_files import read_baseline
from pipeline.judging.gate import judge_scores
from pipeline.runtime.git import user
from pipeline.storage.params_file import read_params
from pipeline.tracking.registry import (
    RUN_KEY_TAG,
    Call,
    evaluation_of,
    registered_name,
    version_with_alias,
    versions_of,
)
from pipeline.tracking.store import database_of, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS
from quatrain.storage import folders
from quatrain.storage.atomic_write import write_durably

CHAMPION = "champion"
# What is said of a run that only another store knows.
ABSENT = "no version in this store"
# File in .state of a workspace: the champions that were set last, so that the store is asked once.
MEMO = "champions.json"
# The newest versions, of which one may become the first champion of a store.
MOST_TRIED = 10
# Tags of a version that is, or was, the champion; LEFT: of one that a rollback has left.
SINCE, UNTIL, BY, WHY, LEFT = (
    f"quatrain.champion.{name}" for name in ("since", "until", "by", "why", "left")
)

Holds = Callable[[Any], bool]


class Alias(NamedTuple):
    """Holds what is new of a model's alias, and whether it is at a version that its baseline
    allows, or at none because there is no version.
    """

    text: str = ""
    is_set: bool = True


def set_champions(root: Path, work: Path, preset: str, again: bool = False) -> list[Alias]:
    """Sets the champions that the baselines in `root` ask for; returns what is new of each, and one
    line for all models that have no version in this store.

    work: the preset's workspace. Neither loads mlflow nor asks the store if the same ones were set
    last. `again` asks all the same: an alias may be deleted there, or the run of a baseline may
    have arrived.

    Raises:
        Exception: any error of mlflow and its libraries; the next call tries again.
    """
    uri = resolve_uri(root)
    baselines = provenances(root, preset)
    memo = work / ".state" / MEMO
    keys = {model: [each["run_key"], _key_of(work, model)] for model, each in baselines.items()}
    content = json.dumps([uri, keys]).encode()
    is_set = memo.is_file() and memo.read_bytes() == content
    if not keys or (is_set and not again):
        return []
    call = open_client(uri).call
    news = {}
    for model, provenance in baselines.items():
        holds = _holding(call, root, work, model)
        name = registered_name(model, preset)
        news[f"{name}@{CHAMPION}"] = set_champion(call, name, provenance, holds)
    if all(alias.is_set for alias in news.values()):
        write_durably(memo, content)
    else:
        memo.unlink(missing_ok=True)
    return _lines(news)


def _key_of(work: Path, model: str) -> str:
    """Returns the key of the run of the learner in `work`, which may have a version since."""
    with suppress(DataError, KeyError, TypeError):
        return str(folders.read_json(work / "models" / model / folders.MANIFEST)["info"]["run_key"])
    return ""


def _lines(news: Mapping[str, Alias]) -> list[Alias]:
    absent = [name.partition("@")[0] for name, alias in news.items() if alias.text == ABSENT]
    lines = [
        alias._replace(text=f"{name}: {alias.text}")
        for name, alias in news.items()
        if alias.text not in ("", ABSENT)
    ]
    return [*lines, Alias(f"{', '.join(absent)}: {ABSENT}")] if absent else lines


def provenances(root: Path, preset: str) -> dict[str, dict[str, Any]]:
    """Returns what the baselines of a preset say of their runs, by model; damaged ones are left
    out, for the gate names them.
    """
    by_model = {}
    for model in MODELS:
        with suppress(DataError, KeyError, TypeError):
            provenance = (read_baseline(root, model) or {})["presets"][preset]["provenance"]
            by_model[model] = {**provenance, "run_key": str(provenance["run_key"])}
    return by_model


def _holding(call: Call, root: Path, work: Path, model: str) -> Holds:
    """Returns a function that says whether the scores of a version hold the model's baseline."""

    def holds(version: Any) -> bool:
        scores = evaluation_of(call, version.run_id).get("scores", {})
        with suppress(ConfigError, DataError):
            return judge_scores(root, model, read_params(work), scores).passed
        return False

    return holds


def set_champion(call: Call, name: str, baseline: Mapping[str, Any], holds: Holds) -> Alias:
    """Sets the alias of one model to the version of its baseline's run.

    A store that has neither that version nor a champion gets the newest that holds the baseline.

    baseline: what it says of its run.
    """
    versions = versions_of(call, name)
    if not versions:
        return Alias(ABSENT)
    key, by, why = baseline["run_key"], baseline.get("by"), baseline.get("why") or "promoted"
    current = version_with_alias(call, name, CHAMPION)
    target = next((each for each in versions if each.tags.get(RUN_KEY_TAG) == key), None)
    if target is None and current is None:
        by, why = None, "the newest here that holds the baseline"
        target = next(filter(holds, versions[:MOST_TRIED]), None)
    absent = f"its baseline's run {key[:12]} has {ABSENT}"
    if target is None and current is None:
        return Alias(f"none: {absent}, and no other version holds the baseline", is_set=False)
    if target is None:
        (champion,) = (each for each in versions if str(each.version) == current)
        if holds(champion):
            return Alias(f"version {current} stays, whose scores hold the baseline; {absent}")
        remedy = "`make rollback` sets one that is here"
        return Alias(f"version {current} breaks the baseline, and stays; {absent}; {remedy}", False)
    version = str(target.version)
    if version != current:
        call("set_registered_model_alias", name, CHAMPION, version)
    _record(call, name, versions, target, {BY: by or user(), WHY: why})
    if version == current:
        return Alias()
    before = "" if current is None else f", in place of version {current}"
    return Alias(f"version {version}, run {str(target.tags.get(RUN_KEY_TAG))[:12]}{before}")


def _record(
    call: Call, name: str, versions: Sequence[Any], champion: Any, tags: Mapping[str, str]
) -> None:
    """Records in tags since when and until when versions were the champion, as far as an earlier
    call has not.
    """
    time = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
    if SINCE not in champion.tags or UNTIL in champion.tags:
        for tag, text in {SINCE: time, **tags}.items():
            call("set_model_version_tag", name, champion.version, tag, text)
        for tag in {UNTIL, LEFT} & champion.tags.keys():
            call("delete_model_version_tag", name, champion.version, tag)
    for each in versions:
        if each is not champion and SINCE in each.tags and UNTIL not in each.tags:
            call("set_model_version_tag", name, each.version, UNTIL, time)


def champion_key(root: Path, model: str, preset: str) -> str:
    """Returns the key of the champion's run by the store or, where that has none, the baseline; ""
    if there is neither.

    Raises:
        Unreachable: the store does not answer.
    """
    uri = resolve_uri(root)
    name = registered_name(model, preset)
    database = database_of(uri)
    if database is None or database.exists():
        call = open_client(uri).call
        if (version := version_with_alias(call, name, CHAMPION)) is not None:
            return str(call("get_model_version", name, version).tags.get(RUN_KEY_TAG, ""))
    return str(provenances(root, preset).get(model, {}).get("run_key", ""))
