"""Restores the sequential stage order of dvc.lock after parallel training."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ruamel.yaml.comments import CommentedMap

from quatrain.storage.atomic_write import write_durably
from quatrain.storage.folders import read_text

NAME = "dvc.lock"


@contextmanager
def in_order(work: Path) -> Iterator[None]:
    """Sorts the stages that are added inside the block into the order in which `dvc repro` runs
    them.

    dvc appends a stage when it is done for the first time, and then leaves it at its place.
    """
    before = stages(work)
    try:
        yield
    finally:
        after = stages(work)
        if len(after) > len(before) + 1:
            _sort(work, before, after)


def stages(work: Path) -> list[str]:
    """Returns the stages of dvc.lock in its order; none if dvc itself will refuse the file."""
    from dvc.utils.serialize import YAMLError, parse_yaml

    path = work / NAME
    try:
        return list(parse_yaml(read_text(path), str(path)).get("stages", {}))
    except (OSError, ValueError, AttributeError, TypeError, RecursionError, YAMLError):
        return []


def _sort(work: Path, before: Sequence[str], after: Sequence[str]) -> None:
    from dvc.repo import Repo
    from dvc.repo.reproduce import get_active_graph, plan_repro
    from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update

    path = work / NAME
    with warnings.catch_warnings(), Repo(str(work)) as repo, repo.lock:
        # Warnings of dvc's libraries about one another.
        warnings.simplefilter("ignore")
        planned = [stage.name for stage in plan_repro(get_active_graph(repo.index.graph))]
        places = {name: place for place, name in enumerate((*planned, *before))}
        ordered = sorted(after, key=lambda name: (name not in before, places.get(name, 0)))
        if ordered != after:
            content = parse_yaml_for_update(read_text(path), NAME)
            entries = content["stages"]
            content["stages"] = CommentedMap((name, entries[name]) for name in ordered)
            write_durably(path, dumps_yaml(content).encode())
