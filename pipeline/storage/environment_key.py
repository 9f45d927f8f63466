"""inputs of a model, environment of a user -> digests and versions of their code.

Nothing of a user is imported for it: modules are found, read, and followed to what they import.
"""

import ast
import re
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec, resolve_name
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.storage.artifacts import file_digest
from quatrain.envs.host.config import HostEnv

INSTALLED = {"site-packages", "dist-packages"}
# Extras of a distribution that no environment needs.
TOOLS = re.compile(r"extra == .(?:all|dev|doc|test)")


class Source(NamedTuple):
    """Holds a file of a user's code; package: what its relative imports begin with."""

    file: Path
    package: str


def inputs_of(folder: Path) -> dict[str, str]:
    """Returns the digests of a model's input files by name.

    Raises:
        DataError: one cannot be read.
    """
    paths = (path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): file_digest(path) for path in paths if path.is_file()}


def environment_of(env: Any) -> dict[str, str]:
    """Returns what decides how an environment of a user behaves: digests of modules, and versions
    of installed distributions with what they require; nothing for an environment of quatrain.

    Raises:
        DataError: a module cannot be read.
    """
    if not isinstance(env, HostEnv):
        return {}
    provided = packages_distributions()
    identity: dict[str, str] = {}
    others = set(sys.stdlib_module_names)
    pending = {env.kind, (env.import_ or _maker_of(str(env.id))).partition(":")[0]}
    while pending:
        name = pending.pop()
        top = name.partition(".")[0]
        if top in others:
            continue
        spec = _spec_of(top)
        if spec is None or spec.origin:
            others.add(top)  # as a whole, below
        if _is_installed(spec):
            for distribution in provided.get(top, ()):
                identity |= _versions_of(distribution)
            continue
        sources = _sources_of(name)
        new = {label: source for label, source in sources.items() if label not in identity}
        identity |= {label: file_digest(source.file) for label, source in new.items()}
        pending = pending.union(*map(_imports, new.values()))
    return dict(sorted(identity.items()))


def _maker_of(env_id: str) -> str:
    """Returns the module that makes an environment of Gymnasium's registry."""
    import gymnasium

    maker = getattr(gymnasium.registry.get(env_id), "entry_point", None)
    return maker if isinstance(maker, str) else getattr(maker, "__module__", "gymnasium")


def _versions_of(distribution: str) -> dict[str, str]:
    """Returns the versions of a distribution and of what it names as required, where installed."""
    lines = [line for line in requires(distribution) or () if not TOOLS.search(line)]
    versions = {}
    for name in (distribution, *(re.split(r"[^\w.-]", line)[0] for line in lines)):
        try:
            versions[f"{name} (version)"] = version(name)
        except PackageNotFoundError:
            continue
    return versions


def _sources_of(name: str) -> dict[str, Source]:
    """Returns the sources that a module of the user's own is made of, by name: those of its
    outermost package, which may register it by name, or its file.
    """
    top, *parts = name.split(".")
    spec = _spec_of(top)
    if spec is None:
        return {}
    folders = [Path(place) for place in spec.submodule_search_locations or ()]
    if spec.origin:
        return _package(top, folders[0]) if folders else {top: Source(Path(spec.origin), "")}
    prefix = top
    for part in parts:  # of packages without __init__.py, such as inputs
        parent, prefix = prefix, f"{prefix}.{part}"
        for folder in folders:
            if (folder / part / "__init__.py").is_file():
                return _package(prefix, folder / part)
            if (folder / f"{part}.py").is_file():
                return {prefix: Source(folder / f"{part}.py", parent)}
        folders = [folder / part for folder in folders]
    return {}


def _package(name: str, folder: Path) -> dict[str, Source]:
    sources = {}
    for path in sorted(folder.rglob("*.py")):
        *inner, stem = path.relative_to(folder).with_suffix("").parts
        package = ".".join((name, *inner))
        sources[f"{package}.{stem}"] = Source(path, package)
    return sources


def _spec_of(top: str) -> ModuleSpec | None:
    try:
        return find_spec(top)
    except (ImportError, ValueError):  # ValueError: the module in memory is from no file
        return None


def _is_installed(spec: ModuleSpec | None) -> bool:
    """Returns whether a version stands for a module's content; True, too, for one of no file."""
    if spec is None:
        return True
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return not any(Path(place).exists() for place in places) or any(
        INSTALLED & {*Path(place).parts} for place in places
    )


def _imports(source: Source) -> Iterator[str]:
    """Yields the modules that a source may import, wherever it does."""
    try:
        nodes = list(ast.walk(ast.parse(source.file.read_bytes())))
    except (SyntaxError, ValueError):  # an extension, or what Python itself will refuse
        return
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = resolve_name("." * node.level + (node.module or ""), source.package)
            except ImportError:
                continue
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
