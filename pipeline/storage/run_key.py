"""params, code, inputs and settings -> the key that names a computation."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quatrain.envs.host.config import HostEnv
from quatrain.params import Params
from quatrain.storage.folders import digest_of, file_digest

# The folder of this code; a stage works in the current folder, which is another one in tests.
CHECKOUT = Path(__file__).resolve().parents[2]
# The modules of a model that shape a stage's outputs, with those that they import.
COMPUTING = {
    "collect": ("collect",),
    "train": ("collect", "train"),
    "evaluate": ("collect", "train", "evaluate", "plots"),
}
# What shapes a learner beside its model's section. `device` and `devices` say where it is computed,
# `checkpoint_seconds` how often it is saved, and `preset` names the values: a learner may be
# evaluated under others of these.
SHAPING = ("seed", "threads", "deterministic")
# Modules that shape the bytes of a result.
WRITERS = (
    "src/quatrain/storage/folders.py",
    "src/quatrain/storage/formats.py",
    "src/quatrain/storage/history.py",
    "src/quatrain/storage/trees.py",
)
INSTALLED = {"site-packages", "dist-packages"}
# Package -> its distributions; to read what is installed takes about a second.
installed = cache(packages_distributions)
# Extras of a distribution that no environment needs.
TOOLS = re.compile(r"extra == .(?:all|dev|doc|test)")


def run_key(
    stage: str,
    params: Mapping[str, Any],
    code: Iterable[Path],
    inputs: Iterable[str],
    settings: Mapping[str, Any],
) -> str:
    """Returns the key of a computation: a digest of all that its result depends on.

    A checkpoint of another key is never continued. `code`: files of the checkout. `inputs`: digests
    of artifacts. `settings`: device, threads, versions of libraries, code of a user.

    Raises:
        FolderError: a file of `code` cannot be read.
    """
    return digest_of(
        {
            "stage": stage,
            "params": dict(params),
            "code": {os.path.relpath(file, CHECKOUT): file_digest(file) for file in code},
            "inputs": list(inputs),
            "settings": dict(settings),
        }
    )


def shaping(params: Params) -> dict[str, Any]:
    return params.model_dump(mode="json", include=set(SHAPING))


def inputs_of(folder: Path) -> dict[str, str]:
    """Returns the digests of a model's input files by name.

    Raises:
        FolderError: one cannot be read.
    """
    paths = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): file_digest(path) for path in paths if path.is_file()}


def code_of(package: str, verb: str) -> list[Path]:
    """Returns the files that shape what a verb computes: the modules of a model, the modules of
    quatrain that they import, and the writers.
    """
    modules = imported_by(CHECKOUT, [f"{package}.{name}" for name in COMPUTING[verb]])
    files = {file_of(CHECKOUT, name) for name in modules}
    return sorted({*files, *(CHECKOUT / name for name in WRITERS)})


def imported_by(root: Path, modules: Iterable[str]) -> set[str]:
    """Returns these modules of quatrain and those that their sources import, directly or through
    others, whether or not this process has loaded them.
    """
    visited: set[str] = set()
    pending = set(modules)
    while pending:
        visited |= pending
        pending = set().union(*(imports(root, file_of(root, name)) for name in pending)) - visited
    return visited


def imports(root: Path, file: Path) -> set[str]:
    """Returns the modules of quatrain that a source imports, wherever it does."""
    names = _imported_names(file.read_bytes())
    return {
        name for name in names if name.startswith("quatrain.") and file_of(root, name).is_file()
    }


@cache
def _imported_names(source: bytes) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def file_of(root: Path, module: str) -> Path:
    """Returns the source of a module, or of a package: its __init__.py."""
    path = (root / "src").joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# Code of a user's environment: nothing is imported for it; modules are found, read, and followed
# to what they import.


def environment_of(env: object) -> dict[str, str]:
    """Returns what decides how an environment of a user behaves: digests of whole packages, which
    may load their modules by name, and versions of installed distributions with what they require;
    nothing for an environment of quatrain.

    Raises:
        FolderError: a source cannot be read.
    """
    if not isinstance(env, HostEnv):
        return {}
    identity: dict[str, str] = {}
    of_others = set(sys.stdlib_module_names)
    visited: set[str] = set()
    pending = [env.kind, (env.import_ or _maker_of(str(env.id))).partition(":")[0]]
    while pending:
        name = pending.pop()
        top = name.partition(".")[0]
        if name in visited or top in of_others:
            continue
        visited.add(name)
        sources = _sources_of(name)
        # A folder without __init__.py, such as inputs, has neither: what is below it is looked at.
        if not sources and (versions := _versions_of(top)):
            identity |= versions
            of_others.add(top)
        for module, source in sources.items():
            if module not in identity:
                identity[module] = file_digest(source)
                pending += _imports(module, source)
    return dict(sorted(identity.items()))


def _maker_of(env_id: str) -> str:
    """Returns the module that makes an environment of Gymnasium's registry."""
    import gymnasium

    maker = getattr(gymnasium.registry.get(env_id), "entry_point", None)
    return maker if isinstance(maker, str) else getattr(maker, "__module__", "gymnasium")


def _sources_of(name: str) -> dict[str, Path]:
    """Returns the files that a module of the user's own is made of, by module: its own, or those of
    the outermost package with an __init__.py; none of a module that is installed.
    """
    top, *parts = name.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):  # ValueError: the module in memory is from no file
        spec = None
    if spec is None:
        return {}
    places = [Path(place) for place in spec.submodule_search_locations or [str(spec.origin)]]
    if any(INSTALLED & {*place.parts} for place in places):
        return {}
    name = top
    while spec.origin is None and parts and not any(map(_is_source, places)):
        part = parts.pop(0)  # of packages without __init__.py, such as inputs
        name = f"{name}.{part}"
        below = [place / part for place in places]
        places = [*(place.with_suffix(".py") for place in below), *below]
    place = next(filter(_is_source, places), None)
    if place is None or place.is_file():
        return {name: place} if place else {}
    modules = (path.relative_to(place).with_suffix("") for path in sorted(place.rglob("*.py")))
    return {".".join((name, *path.parts)): (place / path).with_suffix(".py") for path in modules}


def _is_source(path: Path) -> bool:
    return path.is_file() or (path / "__init__.py").is_file()


def _versions_of(package: str) -> dict[str, str]:
    """Returns the versions of a package's distributions and of what these name as required, where
    installed.
    """
    versions = {}
    for distribution in installed().get(package, ()):
        lines = [line for line in requires(distribution) or () if not TOOLS.search(line)]
        for name in (distribution, *(re.split(r"[^\w.-]", line)[0] for line in lines)):
            try:
                versions[f"{name} (version)"] = version(name)
            except PackageNotFoundError:
                continue
    return versions


def _imports(module: str, source: Path) -> Iterator[str]:
    """Yields the modules that a source may import, wherever it does."""
    try:
        nodes = list(ast.walk(ast.parse(source.read_bytes())))
    except (SyntaxError, ValueError):  # which Python itself will refuse
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = module.rsplit(".", node.level)[:1] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
