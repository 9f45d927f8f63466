"""dvc.lock -> whether DVC's cache and the outs still have its hashes; every byte is read and hashed
again.

DVC does not hash a file again whose time and size are unchanged, nor a cache object that is
read-only.
"""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from pipeline.dvc.workspace import alone
from pipeline.runtime import console
from pipeline.storage.params_file import workspace_of
from quatrain.errors import DataError

# A cache object below files/md5: its name is the hash of its content; DVC's temporary files have
# other names.
OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")


class Stored(NamedTuple):
    """Holds a cache object or an out with its hash. ignore: DVC's rules for files in it."""

    path: Path
    digest: str
    fault: str
    ignore: Any = None

    def is_intact(self) -> bool:
        """Returns whether it still has its hash; hashes that DVC stored are not used."""
        from dvc.fs import localfs
        from dvc_data.hashfile.build import build
        from dvc_data.hashfile.db import HashFileDB

        without_state = HashFileDB(localfs, os.devnull)
        try:
            actual = build(
                without_state, str(self.path), localfs, "md5", ignore=self.ignore, dry_run=True
            )[2]
        except FileNotFoundError:  # a link that leads nowhere
            return False
        return bool(actual.hash_info.value == self.digest)


def verify(root: Path) -> None:
    """Reads all cache objects and outs of the checkout and its presets; prints a line for each that
    is damaged.

    Raises:
        LockHeld: a run is writing them.
        DataError: something is damaged, or DVC cannot read its own files.
    """
    presets = ["default", *(lock.parent.name for lock in sorted(root.glob(".presets/*/dvc.lock")))]
    with ExitStack() as locks:
        for preset in presets:
            locks.enter_context(alone(root, preset))
        _verify(root, [workspace_of(root, preset) for preset in presets])


def _verify(root: Path, places: Sequence[Path]) -> None:
    objects = cache_objects(root)
    outs = [out for place in places if (place / "dvc.lock").exists() for out in outs_of(place)]
    present = [out for out in outs if os.path.lexists(out.path)]
    each = tqdm([*objects, *present], desc="verify", disable=None, leave=False)
    damaged = [stored for stored in each if not stored.is_intact()]
    for stored in damaged:
        console.info(f"verify: {os.path.relpath(stored.path, root)}: {stored.fault}")
    total = f"{len(objects)} cache objects and {len(present)} outs read"
    if damaged:
        raise DataError(f"{len(damaged)} damaged; {total}")
    absent = len(outs) - len(present)
    rest = f"; {absent} outs are not here (`dvc pull` or `make repro` brings them)"
    print(f"verify: {total}: all are what their names and dvc.lock say{rest if absent else ''}")


def cache_objects(root: Path) -> list[Stored]:
    with opened(root) as repo:
        cache = Path(repo.cache.local.path)
    fault = "is not what its name says; remove it, then `dvc fetch` or `dvc repro`"
    return [
        Stored(path, f"{path.parent.name}{path.stem}", fault)
        for path in sorted(cache.glob("??/*"))
        if OBJECT.fullmatch(str(path.relative_to(cache)))
    ]


def outs_of(work: Path) -> list[Stored]:
    with opened(work) as repo:
        outs = [out for stage in repo.index.stages for out in stage.outs if out.hash_info]
        return [
            Stored(Path(out.fs_path), out.hash_info.value, fault_of(out), repo.dvcignore)
            for out in outs
        ]


def fault_of(out: Any) -> str:
    """Returns what to say of a damaged out: `dvc checkout` skips what looks unchanged."""
    restore = f"`git checkout {out}` restores it"
    if out.use_cache:
        restore = f"remove it, then `dvc checkout {out}`"
    return f"is not what dvc.lock says; {restore}, or `dvc repro` if it was you who changed it"


@contextmanager
def opened(work: Path) -> Iterator[Any]:
    """Opens DVC's Repo of a folder.

    Raises:
        DataError: the folder is not a DVC checkout, or DVC refuses one of its files.
    """
    from dvc.exceptions import DvcException
    from dvc.repo import Repo

    try:
        with Repo(str(work)) as repo:
            yield repo
    except DvcException as error:
        raise DataError(
            f"dvc cannot read {work.name}: {' '.join(str(error).split())}; "
            "`git checkout` or `make repro` mends it"
        ) from None
