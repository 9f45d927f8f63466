"""baselines -> the alias `champion` of registered models in MLflow: versions with the scores that
are the baselines.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pipeline.judging.gate import judge, read_baseline
from pipeline.storage.params_file import read_params
from pipeline.tracking.registry import (
    RUN_KEY_TAG,
    Call,
    registered_name,
    version_with_alias,
    versions_of,
)
from pipeline.tracking.store import check_reachable, database_of, open_client, resolve_uri
from quatrain.errors import ConfigError, DataError
from quatrain.registry import MODELS
from quatrain.storage.atomic_write import write_durably

CHAMPION = "champion"
# What is said of a run that only another store knows.
ABSENT = "no version in this store"
# File in .state of a workspace: the champions that were set last, so that the store is asked once.
MEMO = "champions.json"


def set_champions(root: Path, work: Path, preset: str, again: bool = False) -> list[str]:
    """Sets the champions that the baselines in `root` ask for; returns a line for each that moved
    or cannot, and one for all whose runs this store does not know.

    work: the preset's workspace. Neither loads mlflow nor asks the store if the same ones were set
    last. `again` asks all the same: an alias may be deleted there, or the run of a baseline may
    have arrived.

    Raises:
        Exception: any error of mlflow and its libraries; the next call tries again.
    """
    uri = resolve_uri(root)
    run_keys = champions(root, work, preset)
    memo = work / ".state" / MEMO
    content = json.dumps([uri, run_keys]).encode()
    is_set = memo.is_file() and memo.read_bytes() == content
    if not run_keys or (is_set and not again):
        return []
    check_reachable(uri)
    call = open_client(uri).call
    news = {name: set_champion(call, name, keys) for name, keys in run_keys.items()}
    write_durably(memo, content)
    absent = [name for name, text in news.items() if text.endswith(ABSENT)]
    lines = [f"{name}@{CHAMPION}: {text}" for name, text in news.items() if text]
    if len(absent) < 2:
        return lines
    others = [line for line in lines if not line.endswith(ABSENT)]
    return [*others, f"{', '.join(absent)}: the runs of their baselines have {ABSENT}"]


def champions(root: Path, work: Path, preset: str) -> dict[str, list[str]]:
    """Returns registered model -> keys of the runs whose version may be its champion.

    The first is the baseline's. The second is that of the learner in `work`, if it passes: it
    becomes the champion of a store that has neither a champion nor the baseline's run.
    """
    run_keys = {}
    for model in MODELS:
        with suppress(DataError, KeyError, TypeError):  # no baseline, or a damaged one
            baseline = read_baseline(root, model) or {}
            keys = [str(baseline["presets"][preset]["provenance"]["run_key"])]
            run_keys[registered_name(model, preset)] = keys
            with suppress(ConfigError):
                judgement = judge(work, model, read_params(work), root)
                if judgement.passed and judgement.preset == preset:
                    keys.append(str(judgement.learner["run_key"]))
    return run_keys


def set_champion(call: Call, name: str, run_keys: Sequence[str]) -> str:
    """Sets the alias of one model; returns what is new, or ""."""
    current = version_with_alias(call, name, CHAMPION)
    for key in run_keys if current is None else run_keys[:1]:
        versions = versions_of(call, name, f"tags.`{RUN_KEY_TAG}` = '{key}'")
        if versions:
            version = str(versions[0].version)
            if version == current:
                return ""
            call("set_registered_model_alias", name, CHAMPION, version)
            return f"version {version}, run {key[:12]}"
    stays = "" if current is None else f"; version {current} stays"
    return f"run {run_keys[0][:12]} has {ABSENT}{stays}"


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
        check_reachable(uri)
        call = open_client(uri).call
        if (version := version_with_alias(call, name, CHAMPION)) is not None:
            return str(call("get_model_version", name, version).tags.get(RUN_KEY_TAG, ""))
    with suppress(DataError, KeyError, TypeError):  # no baseline, or a damaged one
        baseline = read_baseline(root, model) or {}
        return str(baseline["presets"][preset]["provenance"]["run_key"])
    return ""
