"""dvc.lock -> whether DVC's cache and the outs at hand are its bytes, all of them read and hashed anew.

DVC hashes no file again whose time and size are as they were, and no cache object that is read-only.
"""

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from pipeline.runtime import console
from pipeline.runtime.command import run_guarded
from pipeline.runtime.errors import ArtifactError, ConfigError

OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")
"""A cache object below files/md5: its name is the hash of its content; DVC's temporary files have other names."""


class Out(NamedTuple):
    """What dvc.lock says of an out that a stage of a workspace made."""

    work: Path
    path: Path
    digest: str
    cached: bool
    files: tuple[Path, ...]

    @property
    def remedy(self) -> str:
        """What brings it back; `dvc checkout` leaves alone what looks untouched, so it is removed first."""
        shown = self.path.relative_to(self.work)
        restore = (
            f"remove it, then `dvc checkout {shown}`"
            if self.cached
            else f"`git checkout {shown}` restores it"
        )
        return f"{restore}, or `dvc repro` if it was you who changed it"


class Tally:
    """What was read, and what was found to be wrong with it."""

    def __init__(self, root: Path, total: int) -> None:
        self.root, self.files, self.size, self.damage = root, 0, 0, list[str]()
        self.bar = tqdm(
            total=total, desc="verify", unit="B", unit_scale=True, disable=None, leave=False
        )

    def digest(self, path: Path) -> str:
        """The hash of a file, by DVC's own function and without its memory of earlier ones."""
        from dvc_data.hashfile.hash import file_md5

        found, size = file_md5(str(path)), path.stat().st_size
        self.files, self.size = self.files + 1, self.size + size
        self.bar.update(size)
        return found

    def wrong(self, path: Path, what: str, remedy: str) -> None:
        shown = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        self.damage.append(f"{shown}: {what}; {remedy}")


def verify(root: Path) -> None:
    """Read all cache objects and outs of the checkout and its presets; a line for each that is damaged.

    Raises:
        ArtifactError: something is damaged, or DVC cannot read its own files.
    """
    found = [out for work in workspaces(root) for out in outs_of(work)]
    cache = cache_of(root)
    objects = sorted(
        path for path in cache.glob("??/*") if OBJECT.fullmatch(str(path.relative_to(cache)))
    )
    files = [*objects, *(file for out in found for file in out.files)]
    tally = Tally(root, sum(path.stat().st_size for path in files))
    with tally.bar:
        for path in objects:
            check_object(tally, path)
        for out in found:
            check_out(tally, out, cache)
    for line in tally.damage:
        console.info(f"verify: {line}")
    read = f"{tally.files:,} files with {tally.size:,} bytes read"
    if tally.damage:
        raise ArtifactError(f"{len(tally.damage)} damaged; {read}")
    absent = [out for out in found if not out.path.exists()]
    rest = (
        f"; {len(absent)} outs are not here (`dvc pull` or `make repro` brings them)"
        if absent
        else ""
    )
    print(
        f"verify: {read}: every cache object is what its name says, every out what dvc.lock says{rest}"
    )


def workspaces(root: Path) -> list[Path]:
    """The checkout and the presets' copies, as far as something was made in them."""
    return [
        path.parent
        for path in (root / "dvc.lock", *sorted(root.glob(".presets/*/dvc.lock")))
        if path.exists()
    ]


def outs_of(work: Path) -> list[Out]:
    """All outs that dvc.lock knows, with the files that are there of each."""

    def read(repo: Any) -> list[Out]:
        outs = [out for stage in repo.index.stages for out in stage.outs if out.hash_info]
        paths = [Path(out.fs_path) for out in outs]
        return [
            Out(work, path, out.hash_info.value, out.use_cache, tuple(files_of(repo, path)))
            for path, out in zip(paths, outs, strict=True)
        ]

    return asked(work, read)


def cache_of(root: Path) -> Path:
    """Where the objects are that are named by their hash."""
    return asked(root, lambda repo: Path(repo.cache.local.path))


def asked(work: Path, question: Callable[[Any], Any]) -> Any:
    """What DVC says about a workspace.

    Raises:
        ConfigError: this is no checkout.
        ArtifactError: DVC refuses one of the workspace's own files.
    """
    from dvc.exceptions import DvcException, NotDvcRepoError
    from dvc.repo import Repo

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # dvc's own libraries among themselves
        try:
            with Repo(str(work)) as repo:
                return question(repo)
        except NotDvcRepoError:
            raise ConfigError("this is no folder of DVC's; run from the repository root") from None
        except DvcException as error:
            why = " ".join(str(error).split())
            raise ArtifactError(
                f"dvc cannot read {work.name}: {why}; `git checkout` or `make repro` mends it"
            ) from None


def files_of(repo: Any, path: Path) -> Iterator[Path]:
    """The file, or those in the folder that DVC would take."""
    if path.is_dir():
        yield from sorted(Path(name) for name in repo.dvcignore.find(repo.fs, str(path)))
    elif path.exists():
        yield path


def check_object(tally: Tally, path: Path) -> None:
    """A cache object must have the hash that it is called by."""
    if tally.digest(path) != f"{path.parent.name}{path.stem}":
        tally.wrong(path, "is not what its name says", "remove it, then `dvc fetch` or `dvc repro`")


def check_out(tally: Tally, out: Out, cache: Path) -> None:
    """An out that is there must be what dvc.lock says; one that is not is no damage."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    if not out.path.exists():
        return
    found = {path: tally.digest(path) for path in out.files}
    if out.path.is_dir():
        tree = Tree()
        for path, digest in found.items():
            tree.add(path.relative_to(out.path).parts, None, HashInfo("md5", digest))
        tree.digest()
        actual = str(tree.hash_info.value)
    else:
        actual = found[out.path]
    if actual != out.digest:
        tally.wrong(
            out.path,
            f"is not what dvc.lock says{differing(out, found, cache) if out.path.is_dir() else ''}",
            out.remedy,
        )


def differing(out: Out, found: dict[Path, str], cache: Path) -> str:
    """Which files of a folder differ, if the cache has the list of what should be there."""
    listing = cache / out.digest[:2] / out.digest[2:]
    try:
        wanted = {
            out.path / entry["relpath"]: entry["md5"] for entry in json.loads(listing.read_bytes())
        }
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    others = sorted(
        path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path)
    )
    return f" ({', '.join(str(path.relative_to(out.path)) for path in others)})" if others else ""


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        prog="python -m pipeline.commands.verify", description=__doc__
    ).parse_args(argv)
    return run_guarded("verify", lambda: verify(Path.cwd()))


if __name__ == "__main__":
    sys.exit(main())
