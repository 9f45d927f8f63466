"""dvc.lock -> whether DVC's cache and the outs still have its hashes; every byte is read and hashed
again.

DVC does not hash a file again whose time and size are unchanged, nor a cache object that is
read-only.
"""

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from pipeline.runtime import console
from quatrain.errors import ConfigError, DataError

# A cache object below files/md5: its name is the hash of its content; DVC's temporary files have
# other names.
OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")


class Out(NamedTuple):
    """Holds a file or folder of a workspace. ignore: DVC's rules for files in it."""

    work: Path
    path: Path
    digest: str
    is_cached: bool
    ignore: Any


def verify(root: Path) -> None:
    """Reads all cache objects and outs of the checkout and its presets; prints a line for each that
    is damaged.

    Raises:
        DataError: something is damaged, or DVC cannot read its own files.
        ConfigError: the folder is not a DVC checkout.
    """
    with opened(root) as repo:
        cache = Path(repo.cache.local.path)
    locks = (root / "dvc.lock", *sorted(root.glob(".presets/*/dvc.lock")))
    outs = [out for lock in locks if lock.exists() for out in outs_of(lock.parent)]
    present = [out for out in outs if os.path.lexists(out.path)]
    objects = [
        path
        for path in sorted(cache.glob("??/*"))
        if OBJECT.fullmatch(str(path.relative_to(cache)))
    ]
    damage = []
    for each in tqdm([*objects, *present], desc="verify", disable=None, leave=False):
        is_out = isinstance(each, Out)
        reason = damage_of_out(each, cache) if is_out else damage_of_object(each)
        if reason:
            path = each.path if is_out else each
            damage.append(f"{os.path.relpath(path, root)}: {reason}")
    for line in damage:
        console.info(f"verify: {line}")
    total = f"{len(objects)} cache objects and {len(present)} outs read"
    if damage:
        raise DataError(f"{len(damage)} damaged; {total}")
    absent = len(outs) - len(present)
    rest = f"; {absent} outs are not here (`dvc pull` or `make repro` brings them)"
    print(f"verify: {total}: all are what their names and dvc.lock say{rest if absent else ''}")


def outs_of(work: Path) -> list[Out]:
    with opened(work) as repo:
        return [
            Out(work, Path(out.fs_path), out.hash_info.value, out.use_cache, repo.dvcignore)
            for stage in repo.index.stages
            for out in stage.outs
            if out.hash_info
        ]


@contextmanager
def opened(work: Path) -> Iterator[Any]:
    """Opens DVC's Repo of a folder.

    Raises:
        ConfigError: the folder is not a DVC checkout.
        DataError: DVC refuses one of the workspace's own files.
    """
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo

    with warnings.catch_warnings():
        # Warnings of dvc's libraries about one another.
        warnings.simplefilter("ignore")
        try:
            with Repo(str(work)) as repo:
                yield repo
        except NotDvcRepoError:
            raise ConfigError("this is no folder of DVC's; run from the repository root") from None
        except DvcException as error:
            raise DataError(
                f"dvc cannot read {work.name}: {' '.join(str(error).split())}; "
                "`git checkout` or `make repro` mends it"
            ) from None


def damage_of_object(path: Path) -> str:
    """Compares a cache object with the hash that its name is; returns what is wrong, or nothing."""
    if path.is_file() and hashed(path).hash_info.value == f"{path.parent.name}{path.stem}":
        return ""
    return "is not what its name says; remove it, then `dvc fetch` or `dvc repro`"


def damage_of_out(out: Out, cache: Path) -> str:
    """Compares an out with dvc.lock; returns what is wrong, or nothing."""
    # `dvc checkout` skips what looks unchanged, so it is removed first.
    name = out.path.relative_to(out.work)
    restore = f"`git checkout {name}` restores it"
    if out.is_cached:
        restore = f"remove it, then `dvc checkout {name}`"
    remedy = f"{restore}, or `dvc repro` if it was you who changed it"
    try:
        actual = hashed(out.path, out.ignore)
    except FileNotFoundError as error:
        link = os.path.relpath(error.filename or out.path, out.work)
        return f"{link} is a link that leads nowhere; {remedy}"
    if actual.hash_info.value == out.digest:
        return ""
    return f"is not what dvc.lock says{differing_files(out, actual, cache)}; {remedy}"


def hashed(path: Path, ignore: Any = None) -> Any:
    """Returns DVC's object of a file or folder, hashed anew: its stored hashes are not used."""
    from dvc.fs import localfs
    from dvc_data.hashfile.build import build
    from dvc_data.hashfile.db import HashFileDB

    without_state = HashFileDB(localfs, os.devnull)
    return build(without_state, str(path), localfs, "md5", ignore=ignore, dry_run=True)[2]


def differing_files(out: Out, tree: Any, cache: Path) -> str:
    """Returns the names of the files of a folder that differ; empty if it is no folder, or the
    cache has no list of them.
    """
    if not out.path.is_dir():
        return ""
    listing = cache / out.digest[:2] / out.digest[2:]
    try:
        expected = {(entry["relpath"], entry["md5"]) for entry in json.loads(listing.read_bytes())}
        actual = {(entry["relpath"], entry["md5"]) for entry in tree.as_list()}
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    names = sorted({name for name, _ in expected ^ actual})
    return f" ({', '.join(names)})" if names else ""
