"""dvc.lock as trainings at the same time leave it -> as one after the other would have."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ruamel.yaml.comments import CommentedMap

from pipeline.storage.atomic_write import write_durably

NAME = "dvc.lock"


@contextmanager
def in_order(work: Path) -> Iterator[None]:
    """Let the stages that become known meanwhile follow in the order in which `dvc repro` runs them.

    dvc appends a stage when it is done for the first time, and then leaves it at its place.
    """
    known = stages(work)
    try:
        yield
    finally:
        found = stages(work)
        if len(found) > len(known) + 1:
            _sort(work, known, found)


def stages(work: Path) -> list[str]:
    """The stages that dvc.lock names, in its order; none where dvc itself will refuse the file."""
    from dvc.utils.serialize import YAMLError, parse_yaml

    path = work / NAME
    try:
        return list(parse_yaml(path.read_text(), str(path)).get("stages", {}))
    except (OSError, ValueError, AttributeError, TypeError, YAMLError):
        return []


def _sort(work: Path, known: Sequence[str], found: Sequence[str]) -> None:
    from dvc.repo import Repo
    from dvc.repo.reproduce import get_active_graph, plan_repro
    from dvc.utils.serialize import dumps_yaml, parse_yaml_for_update

    with warnings.catch_warnings(), Repo(str(work)) as repo, repo.lock:
        warnings.simplefilter("ignore")  # dvc's own libraries among themselves
        planned = [stage.name for stage in plan_repro(get_active_graph(repo.index.graph))]
        places = {name: place for place, name in enumerate((*planned, *known))}
        wanted = sorted(found, key=lambda name: (name not in known, places.get(name, 0)))
        if wanted != found:
            content = parse_yaml_for_update((work / NAME).read_text(), NAME)
            content["stages"] = CommentedMap((name, content["stages"][name]) for name in wanted)
            write_durably(work / NAME, dumps_yaml(content).encode())
