"""a name, a model -> a project of one's own: a copy of this code with one learner.

Of the other models it has nothing, nor what only they import; what a wheel holds is all that it is
copied from.
"""

import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pipeline
import quatrain
from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.git import output
from pipeline.scaffolding.new_model import without
from pipeline.storage.run_key import imported_by, imports
from quatrain.errors import ConfigError
from quatrain.registry import MODELS

# Links to files beside the packages; a wheel has copies of them. Another name has what tools would
# take for a file of theirs.
TEMPLATE = Path(pipeline.__file__).parent / "new_project"
RENAMED = {
    "stages.yaml": "dvc.yaml",
    "gitignore": ".gitignore",
    "dvcignore": ".dvcignore",
    "dvc_config": ".dvc/config",
    "dvc_gitignore": ".dvc/.gitignore",
    "data_gitignore": "data/.gitignore",
    "models_gitignore": "models/.gitignore",
    "reports_gitignore": "reports/.gitignore",
    "test_project.py": "tests/test_project.py",
}
# Of this code alone: studies for its documents, and what makes projects.
LEFT_OUT = re.compile(r"pipeline/trials/studies/|pipeline/scaffolding/new_project\.py")
TOPS = ("benchmarks", "examples", "pipeline", "quatrain", "tests")
# Parts of models, which go with the models that import them; of adapters those whose parts stay.
PARTS = re.compile(r"quatrain\.(replay|envs\.(?!host\b|adapters\b)\w+)\.\w+")
ADAPTERS = re.compile(r"quatrain\.envs\.adapters\.")
# Modules of tests that only other tests use.
HELPER = re.compile(r"(?!test_|conftest|sizes|forms).*\.py")
MODULE = re.compile(r"\btests(?:\.\w+)+")
# A name of a distribution (PyPA), of which MLflow's names of models are made.
NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,62}[A-Za-z0-9])?")
NEXT = """
{name} is a project of yours, with the learner {model}{commit}. Next:
  cd {name}
  make repro      install into .venv (once), collect, train, evaluate, compare with the baseline
  make compare MODEL={model} ARGS='-S train.learning_rate=3e-3'    does a change help?
README.md has more.\
"""


def create(folder: Path, name: str, model: str) -> Path:
    """Writes a project, or nothing; returns its folder.

    Raises:
        ConfigError: the name cannot be used, or the folder holds something.
        OSError: the disk is full.
    """
    root, work = folder / name, folder / f".{name}.partial"
    check_name(name)
    if os.path.lexists(root) and not (root.is_dir() and not any(root.iterdir())):
        raise ConfigError(f"{name} is there already; give another name, or an empty folder")
    shutil.rmtree(work, ignore_errors=True)  # of a process that was killed
    try:
        copy(work, model)
        remove_unused(work, model)
        adapt(work, name, model)
        work.rename(root)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    return root


def first_commit(root: Path) -> str:
    """Commits a project, whose presets run in copies of what git lists; says it if git does not."""
    try:
        output(root, "init", "--quiet")
        output(root, "add", ".")
        message = ("-m", "A project of quatrain init")
        output(root, "commit", "--quiet", "--no-gpg-sign", "--no-verify", *message)
    except CommandFailed as error:
        todo = "run `git init && git add . && git commit -m start` there"
        return f", which is not committed ({error}); {todo}"
    return ""


def check_name(name: str) -> None:
    """Raises ConfigError unless a folder, a distribution and an experiment may have this name."""
    if not NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a project; give at most 64 letters, digits, dots, hyphens and "
            "underscores that begin and end with a letter or a digit, such as my-project"
        )
    locks = (path.read_text() for path in (TEMPLATE / "requirements").glob("*.txt"))
    packages = re.findall(r"^([\w.-]+)\S*==", "\n".join(locks), re.M)
    if normal(name) in map(normal, packages):
        raise ConfigError(f"{name!r} is a package that a project installs; give another name")


def normal(name: str) -> str:
    """Returns the form in which names of distributions are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sources() -> Iterator[tuple[str, Path]]:
    """Yields the files that a wheel holds, with their paths in a project."""
    project = tomllib.loads((TEMPLATE / "pyproject.toml").read_text("utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]
    for package, place in ((quatrain, "src/quatrain"), (pipeline, "pipeline")):
        folder = Path(str(package.__file__)).parent
        data = (path for each in patterns[folder.name] for path in folder.glob(each))
        for path in filter(Path.is_file, {*folder.rglob("*.py"), *data}):
            name = f"{place}/{path.relative_to(folder)}"
            name = re.sub("^(src/quatrain/defaults|pipeline/new_project)/", "", name)
            yield RENAMED.get(name, name), path


def copy(root: Path, model: str) -> None:
    """Copies all but the files of other models, and all sections but theirs."""
    others = MODELS.keys() - {model}
    of_others = re.compile(rf"(^|/)({'|'.join(others)})(_|/|\.|$)")
    for name, source in sources():
        if of_others.search(name) or LEFT_OUT.match(name) or "__pycache__" in name:
            continue
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if name in ("params.yaml", "dvc.yaml") or name.startswith("presets/"):
            (root / name).write_text(without(source.read_text("utf-8"), others), "utf-8")
        else:
            shutil.copyfile(source, root / name)
    for default in ("params.yaml", "presets"):
        link = root / "src/quatrain/defaults" / default
        link.parent.mkdir(exist_ok=True)
        link.symlink_to(f"../../../{default}")


def remove_unused(root: Path, model: str) -> None:
    """Removes environments and buffers that no module imports, adapters and verbs that import a
    removed one, presets that have no section of the model, tests, and folders that are empty then.
    """
    modules = {module_of(root, path): path for path in (root / "src").rglob("*.py")}
    parts = {name for name in modules if PARTS.match(name)}
    reached = imported_by(root, modules.keys() - parts - {*filter(ADAPTERS.match, modules)})
    for name, path in modules.items():
        below = f"{name}."
        is_package = path.name == "__init__.py" and PARTS.match(f"{below}x")
        is_empty = is_package and not any(each.startswith(below) for each in parts & reached)
        if is_empty or (not is_package and name in parts - reached):
            path.unlink()
    adapters = (root / "src/quatrain/envs/adapters").iterdir()
    for path in (*adapters, *(root / "pipeline").glob("[!n]*/**/*.py")):  # not those of new_model
        if any(name.startswith("quatrain.") for name in absent_imports(root, path)):
            path.unlink()
    for path in (root / "presets").iterdir():
        if f"\n{model}:" not in path.read_text("utf-8"):
            path.unlink()
    remove_tests(root, model)
    for folder in sorted(filter(Path.is_dir, root.rglob("*")), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def remove_tests(root: Path, model: str) -> None:
    """Removes tests that name other models or import what is absent, and helpers of none, until
    none is left.
    """
    others = re.compile(rf"\b({'|'.join(MODELS.keys() - {model})})\b")
    while True:
        paths = [*(root / "tests").rglob("*.py")]
        used = frozenset[str]().union(*(imports(path, module_of(root, path)) for path in paths))
        texts = {path: path.read_text("utf-8") for path in paths}
        used |= {*MODULE.findall("\n".join(texts.values()))}
        unusable = [
            path
            for path in paths
            if others.search(texts[path])
            or absent_imports(root, path)
            or (HELPER.fullmatch(path.name) and module_of(root, path) not in used)
        ]
        if not unusable:
            return
        for path in unusable:
            path.unlink()


def absent_imports(root: Path, path: Path) -> list[str]:
    """Returns the modules of a project that a file imports, and that are not there."""
    return [name for name in imports(path, module_of(root, path)) if is_absent(root, name)]


def module_of(root: Path, path: Path) -> str:
    """Returns the name by which a file of a project is imported."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[parts[0] == "src" :]).removesuffix(".__init__")


def is_absent(root: Path, name: str) -> bool:
    """Returns whether a project has neither a module of this name nor a module or package that has
    it as a member; a library's name is never absent.
    """
    base = root / ("src" if name.startswith("quatrain.") else "")
    path = base.joinpath(*name.split("."))
    top, _, below = name.partition(".")
    if top not in TOPS or not below or path.is_dir() or path.with_suffix(".py").is_file():
        return False
    above, package = path.parent.with_suffix(".py"), path.parent / "__init__.py"
    return not above.is_file() and not (package.is_file() and path.name in package.read_text())


def adapt(root: Path, name: str, model: str) -> None:
    """Writes the project's name and its model where this project's stand."""
    edit(root / "pipeline/tracking/records.py", {"(?m)^EXPERIMENT = .*": f'EXPERIMENT = "{name}"'})
    sweep = next((root / "sweeps").iterdir()).name
    edit(root / "Makefile", {r"sweeps/allo_lr\.yaml": f"sweeps/{sweep}", r"\ballo\b": model})
    edit(root / "README.md", {"{name}": name, "{model}": model})
    ids = root / "src/quatrain/envs/adapters/registration.py"
    present = "|".join(path.stem for path in ids.parent.iterdir())
    absent = rf'(?m)^    "quatrain/\S+: \("(?!{present}).*\n'
    edit(ids, {absent: "", r"\{\n    (.*),\n\}\n": r"{\1}\n"})  # as ruff formats a single entry
    edit(
        root / "pyproject.toml",
        {
            r'(?m)^name = "quatrain"': f'name = "{name}"',
            "(?m)^description = .*": f'description = "{name}: a pipeline that learns {model}."',
            "quatrain\\[": f"{name}[",
            r"(?m)^(authors|exclude) = .*\n": "",
            r'(?m)^    "new_project/.*\n|^# new_project.*\n': "",
            r"(?ms)^\[project\.urls\].*?\n\n": "",
            r"(?s)\n\[tool\.importlinter\].*": "",
        },
    )


def edit(path: Path, changes: dict[str, str]) -> None:
    text = path.read_text("utf-8")
    for pattern, replacement in changes.items():
        text = re.sub(pattern, replacement, text)
    path.write_text(text, "utf-8")
