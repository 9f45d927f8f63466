"""dvc.lock -> whether DVC's cache and the outs still have its hashes; every byte is read and hashed
again.

DVC does not hash a file again whose time and size are unchanged, nor a cache object that is
read-only.
"""

import json
import re
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tqdm import tqdm

from pipeline.runtime import console
from pipeline.runtime.command import Command
from quatrain.errors import ConfigError, DataError

# A cache object below files/md5: its name is the hash of its content; DVC's temporary files have
# other names.
OBJECT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{30}(\.dir)?")


class Out(NamedTuple):
    work: Path
    path: Path
    digest: str
    is_cached: bool
    files: tuple[Path, ...]

    @property
    def remedy(self) -> str:
        # `dvc checkout` skips what looks unchanged, so it is removed first.
        name = self.path.relative_to(self.work)
        cached = f"remove it, then `dvc checkout {name}`"
        restore = cached if self.is_cached else f"`git checkout {name}` restores it"
        return f"{restore}, or `dvc repro` if it was you who changed it"


class Verification:
    """Counts what was read, and collects a line for each file that is damaged."""

    def __init__(self, root: Path, total_bytes: int) -> None:
        self.root = root
        self.files = 0
        self.size = 0
        self.damage: list[str] = []
        self.bar = tqdm(
            total=total_bytes, desc="verify", unit="B", unit_scale=True, disable=None, leave=False
        )

    def digest(self, path: Path) -> str:
        """Returns the hash of a file by DVC's own function, without its stored hashes."""
        from dvc_data.hashfile.hash import file_md5

        size = path.stat().st_size
        self.files += 1
        self.size += size
        self.bar.update(size)
        return file_md5(str(path))

    def add_damage(self, path: Path, reason: str, remedy: str) -> None:
        name = path.relative_to(self.root) if path.is_relative_to(self.root) else path
        self.damage.append(f"{name}: {reason}; {remedy}")

    def check_object(self, path: Path) -> None:
        """Compares a cache object with the hash that its name is."""
        if path.is_file() and self.digest(path) == f"{path.parent.name}{path.stem}":
            return
        remedy = "remove it, then `dvc fetch` or `dvc repro`"
        self.add_damage(path, "is not what its name says", remedy)

    def check_out(self, out: Out, cache: Path) -> None:
        """Compares an out with dvc.lock; an absent one is not damaged."""
        links = [path for path in (out.path, *out.files) if is_link_to_nothing(path)]
        for path in links:
            self.add_damage(path, "is a link that leads nowhere", out.remedy)
        if links or not out.path.exists():
            return
        digests = {path: self.digest(path) for path in out.files}
        is_folder = out.path.is_dir()
        actual = folder_digest(out, digests) if is_folder else digests[out.path]
        if actual != out.digest:
            differing = differing_files(out, digests, cache) if is_folder else ""
            self.add_damage(out.path, f"is not what dvc.lock says{differing}", out.remedy)


def verify(root: Path) -> None:
    """Reads all cache objects and outs of the checkout and its presets; prints a line for each that
    is damaged.

    Raises:
        DataError: something is damaged, or DVC cannot read its own files.
    """
    outs = [
        out
        for lock in (root / "dvc.lock", *sorted(root.glob(".presets/*/dvc.lock")))
        if lock.exists()
        for out in outs_of(lock.parent)
    ]
    cache: Path = ask_dvc(root, lambda repo: Path(repo.cache.local.path))
    objects = [
        path
        for path in sorted(cache.glob("??/*"))
        if OBJECT.fullmatch(str(path.relative_to(cache)))
    ]
    files = [*objects, *(file for out in outs for file in out.files)]
    size = sum(path.stat().st_size for path in files if path.is_file())
    verification = Verification(root, size)
    with verification.bar:
        for path in objects:
            verification.check_object(path)
        for out in outs:
            verification.check_out(out, cache)
    for line in verification.damage:
        console.info(f"verify: {line}")
    total = f"{verification.files:,} files with {verification.size:,} bytes read"
    if verification.damage:
        raise DataError(f"{len(verification.damage)} damaged; {total}")
    absent = sum(not out.path.exists() for out in outs)
    rest = f"; {absent} outs are not here (`dvc pull` or `make repro` brings them)"
    print(
        f"verify: {total}: "
        "every cache object is what its name says, every out what dvc.lock says"
        f"{rest if absent else ''}"
    )


def outs_of(work: Path) -> list[Out]:
    def read(repo: Any) -> list[Out]:
        return [
            Out(
                work=work,
                path=Path(out.fs_path),
                digest=out.hash_info.value,
                is_cached=out.use_cache,
                files=tuple(files_of(repo, Path(out.fs_path))),
            )
            for stage in repo.index.stages
            for out in stage.outs
            if out.hash_info
        ]

    return ask_dvc(work, read)


def ask_dvc(work: Path, question: Callable[[Any], Any]) -> Any:
    """Returns the answer of a function of DVC's Repo.

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
                return question(repo)
        except NotDvcRepoError:
            raise ConfigError("this is no folder of DVC's; run from the repository root") from None
        except DvcException as error:
            raise DataError(
                f"dvc cannot read {work.name}: {' '.join(str(error).split())}; "
                "`git checkout` or `make repro` mends it"
            ) from None


def files_of(repo: Any, path: Path) -> list[Path]:
    """Returns the file, or the files of the folder that DVC does not ignore."""
    if path.is_dir():
        return sorted(Path(name) for name in repo.dvcignore.find(repo.fs, str(path)))
    return [path] if path.exists() else []


def is_link_to_nothing(path: Path) -> bool:
    return path.is_symlink() and not path.exists()


def folder_digest(out: Out, digests: dict[Path, str]) -> str:
    """Returns DVC's hash of a folder from the hashes of its files."""
    from dvc_data.hashfile.hash_info import HashInfo
    from dvc_data.hashfile.tree import Tree

    tree = Tree()
    for path, digest in digests.items():
        tree.add(path.relative_to(out.path).parts, None, HashInfo("md5", digest))
    tree.digest()
    return str(tree.hash_info.value)


def differing_files(out: Out, digests: dict[Path, str], cache: Path) -> str:
    """Returns the names of the files of a folder that differ; empty if the cache has no list of
    them.
    """
    listing = cache / out.digest[:2] / out.digest[2:]
    try:
        expected = {
            out.path / entry["relpath"]: entry["md5"] for entry in json.loads(listing.read_bytes())
        }
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    differing = {path for path, _ in expected.items() ^ digests.items()}
    names = ", ".join(str(path.relative_to(out.path)) for path in sorted(differing))
    return f" ({names})" if names else ""


main = Command(
    name="verify",
    summary="Hashes DVC's cache and all outs again and compares them with dvc.lock.",
    work=lambda _: verify(Path.cwd()),
)

if __name__ == "__main__":
    sys.exit(main())
