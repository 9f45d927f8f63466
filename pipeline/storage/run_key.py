"""params, code and input files -> what a result depends on, by which keys and digests name it."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from quatrain.envs.host.config import HostEnv
from quatrain.params import Params
from quatrain.registry import MODELS, load
from quatrain.storage.folders import digest_of, file_digest

# The folder of this code; a stage works in the current folder, which is another one in tests.
CHECKOUT = Path(__file__).resolve().parents[2]
# The modules of a model that shape a stage's outputs, with those that they import.
COMPUTING = {
    "collect": ("collect",),
    "train": ("collect", "train"),
    "evaluate": ("collect", "train", "evaluate", "plots", "rules"),
}
# What shapes a learner beside its model's section. `device` and `devices` say where it is computed:
# a learner may be evaluated elsewhere.
SHAPING = ("seed", "threads", "deterministic")
# Params that no result depends on: how often a learner is saved, whether a recording is refused,
# and what names the values.
IRRELEVANT = {"checkpoint_seconds", "drift", "preset"}
# Modules that shape the bytes of a result.
WRITERS = (
    "src/quatrain/storage/folders.py",
    "src/quatrain/storage/formats.py",
    "src/quatrain/storage/history.py",
    "src/quatrain/frameworks/packing.py",
)
INSTALLED = {"site-packages", "dist-packages"}
# Package -> its distributions; to read what is installed takes about a second.
installed = cache(packages_distributions)
# Extras of a distribution that no environment needs.
TOOLS = re.compile(r"extra == .(?:all|dev|doc|test)")


def shaping(params: Params) -> dict[str, Any]:
    return params.model_dump(mode="json", include=set(SHAPING))


def params_of(params: Params, model: str) -> dict[str, Any]:
    """Returns the params that a result of a model depends on."""
    return params.model_dump(mode="json", exclude=IRRELEVANT | MODELS.keys() - {model})


def sources_of(
    root: Path, model: str, params: Params, verb: str, checkout: Path = CHECKOUT
) -> dict[str, str]:
    """Returns the digests of a checkout's code that shapes what a verb of a model computes, and of
    the model's input files in `root`, by their paths.

    Raises:
        FolderError: a file cannot be read.
    """
    config = getattr(params, model)
    code = code_of(load(model).package, config.WORLD, verb, checkout)
    files = {os.path.relpath(path, checkout): path for path in code} | inputs_of(root, model)
    return {name: file_digest(path) for name, path in sorted(files.items())}


def inputs_of(root: Path, *models: str) -> dict[str, Path]:
    """Returns the input files of these models, or of all and what they share, by their paths;
    hidden ones and __pycache__ belong to tools.
    """
    folder = root / "inputs"
    paths = [path for model in models or [""] for path in (folder / model).rglob("*")]
    return {
        str(path.relative_to(root)): path
        for path in paths
        if path.is_file()
        and not any(
            part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts
        )
    }


def code_digest(
    root: Path, model: str, params: Params, verb: str, checkout: Path = CHECKOUT
) -> str:
    """Returns the digest of `sources_of`, and of a user's environment."""
    environment = environment_of(getattr(params, model).env)
    return digest_of([sources_of(root, model, params, verb, checkout), environment])


def code_of(package: str, world: str, verb: str, checkout: Path = CHECKOUT) -> list[Path]:
    """Returns the files that shape what a verb computes: its stage, the modules of a model and its
    world, the modules of quatrain that they import, and the writers.

    The `__init__` of a package, which is no dependency in dvc.yaml, holds no code.
    """
    modules = imported_by(checkout, [*(f"{package}.{name}" for name in COMPUTING[verb]), world])
    files = {file_of(checkout, name) for name in modules}
    files |= {checkout / name for name in (f"pipeline/stages/{verb}.py", *WRITERS)}
    return sorted(file for file in files if file.name != "__init__.py")


def imported_by(root: Path, names: Iterable[str]) -> set[str]:
    """Returns those of these names that are modules of quatrain, and those that their sources
    import, directly or through others, whether or not this process has loaded them.
    """
    visited: set[str] = set()
    pending = set(names)
    while pending:
        unread = {name for name in pending - visited if name.startswith("quatrain.")}
        sources = {name: file_of(root, name) for name in unread}
        visited |= {name for name, source in sources.items() if source.is_file()}
        pending = set().union(*(imports(sources[name], name) for name in unread & visited))
    return visited


def imports(source: Path, module: str = "") -> frozenset[str]:
    """Returns what a source may import, wherever it does: modules, and names that may be some."""
    return _imported_names(source.read_bytes(), module)


@cache
def _imported_names(source: bytes, module: str) -> frozenset[str]:
    names: set[str] = set()
    with suppress(SyntaxError, ValueError):  # which Python itself will refuse
        for node in _statements(ast.parse(source)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                package = module.rsplit(".", node.level)[:1] if node.level else []
                base = ".".join([*package, *([node.module] if node.module else [])])
                names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yields the statements below a node; no import is in an expression."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from _statements(inner)


def file_of(root: Path, module: str) -> Path:
    """Returns the source of a module, or of a package: its __init__.py."""
    path = (root / "src").joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# Code of a user's environment: modules are read and followed, and none is imported.


def environment_of(env: object) -> dict[str, str]:
    """Returns what decides how an environment of a user behaves: digests of whole packages, which
    may load their modules by name, and versions of installed distributions with what they require;
    nothing for an environment of quatrain. Of a recording digests of its files.

    Raises:
        FolderError: a source, or a file of a recording, cannot be read.
    """
    if not isinstance(env, HostEnv):
        return {}
    if path := getattr(env, "path", None):
        return _recording_of(path)
    identity: dict[str, str] = {}
    of_others = set(sys.stdlib_module_names)
    visited: set[str] = set()
    makers = [env.import_ or _maker_of(str(env.id)), *(each.import_ for each in env.wrappers)]
    pending = [env.kind, *(maker.partition(":")[0] for maker in makers)]
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
                pending += sorted(imports(source, module))
    return dict(sorted(identity.items()))


def _recording_of(path: str) -> dict[str, str]:
    """Returns the digests of the files of this path, which may be a pattern; of a dataset of minari
    its ID, and the installed version.
    """
    from quatrain.storage.recordings import MINARI

    if path.startswith(MINARI):
        return {"dataset": path, **_versions_of("minari")}
    pattern = Path(path)
    files = sorted({pattern, *pattern.parent.glob(pattern.name)})
    return {file.name: file_digest(file) for file in files if file.is_file()}


def _maker_of(env_id: str) -> str:
    """Returns the module that makes an environment of Gymnasium's registry."""
    import gymnasium

    maker = getattr(gymnasium.registry.get(env_id), "entry_point", None)
    return maker if isinstance(maker, str) else getattr(maker, "__module__", "gymnasium")


def _sources_of(name: str) -> dict[str, Path]:
    """Returns the files that a module of the user's own is made of, by module: its own, or those of
    the outermost package with an __init__.py; none of a module that is installed.
    """
    spec, places, module = None, None, ""
    for part in name.split("."):
        module = f"{module}.{part}".strip(".")
        with suppress(ImportError, ValueError):  # ValueError: the module in memory is from no file
            spec = PathFinder.find_spec(part, places) if places else find_spec(part)
        if spec is None or spec.origin:
            break
        places = list(spec.submodule_search_locations or ())  # without __init__.py, such as inputs
    if spec is None or not spec.origin or INSTALLED & {*Path(spec.origin).parts}:
        return {}
    origin = Path(spec.origin)
    if origin.name != "__init__.py":
        return {module: origin}
    folder = origin.parent
    below = {path.relative_to(folder).with_suffix("").parts: path for path in folder.rglob("*.py")}
    return {".".join((module, *parts)): path for parts, path in below.items()}


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
