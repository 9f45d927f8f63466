"""a name, a framework, templates -> the text of each file that a further model adds or changes."""

import ast
import re
from collections.abc import Callable
from pathlib import Path

from pipeline.scaffolding.checkout import Change
from quatrain.errors import ConfigError
from quatrain.registry import MODELS

TEMPLATES = Path(__file__).parent.parent / "new_model"
# The model of the templates.
PLACEHOLDER = "sketch"
CONTRACTS = {"jax": "a JAX model never imports torch", "torch": "a torch model never imports jax"}

Edit = Callable[[str], str]


class PlaceMissing(Exception):
    """Says which place for a further model a file does not have."""


def changes(root: Path, name: str, framework: str) -> dict[str, Change]:
    """Returns the old and new text of each file, by its path in the checkout; writes nothing.

    Raises:
        ConfigError: a file has lost its place for a further model.
    """
    planned = {path: Change(None, text) for path, text in _new_files(name, framework).items()}
    for path, edit in _edits(name, framework).items():
        try:
            old = (root / path).read_text("utf-8")
            planned[path] = Change(old, edit(old))
        except (OSError, UnicodeError, PlaceMissing, SyntaxError) as error:
            reason = str(error) or type(error).__name__
            raise ConfigError(
                f"{path}: {reason}; `git diff {path}` shows what was changed, mend it and run again"
            ) from None
    return planned


def class_name(name: str) -> str:
    """Returns my_model as MyModel."""
    return "".join(part.capitalize() for part in name.split("_"))


def _fill(text: str, name: str) -> str:
    text = text.replace(PLACEHOLDER.capitalize(), class_name(name))
    return re.sub(rf"\b{PLACEHOLDER}\b", name, text)


def _template(path: str, name: str) -> str:
    return _fill((TEMPLATES / path).read_text("utf-8"), name)


def _new_files(name: str, framework: str) -> dict[str, str]:
    files = {
        f"inputs/{name}/.gitkeep": "",
        f"reports/{name}/.gitignore": "/verdict.json\n/plots\n/curves\n",
        f"baselines/{name}.json": f'{{"schema": 1, "model": "{name}", "presets": {{}}}}\n',
        f"tests/models/{name}/sizes.py": _template("common/sizes.py", name),
    }
    for folder in ("common", framework):
        for path in sorted((TEMPLATES / folder).glob("*.py")):
            if path.name != "sizes.py":
                target = f"src/quatrain/models/{name}/{path.name}"
                files[target] = _template(f"{folder}/{path.name}", name)
    return files


def _edits(name: str, framework: str) -> dict[str, Edit]:
    def appended(path: str) -> Edit:
        return lambda text: text.rstrip("\n") + "\n" + _template(path, name)

    return {
        "src/quatrain/registry.py": lambda text: _add_to_registry(text, name, framework),
        "src/quatrain/params.py": lambda text: _add_to_params(text, name),
        "params.yaml": appended("params.yaml"),
        "dvc.yaml": lambda text: _add_to_dvc(text, name, framework),
        "pyproject.toml": lambda text: _add_to_contract(text, name, framework),
        "data/.gitignore": lambda text: f"{text}/{name}\n",
        "models/.gitignore": lambda text: f"{text}/{name}\n",
        "tests/config_limits.txt": appended("config_limits.txt"),
        "tests/config_refusals.txt": appended("config_refusals.txt"),
        "tests/contract_types.py": appended("contract_types.txt"),
    }


def _add_to_registry(text: str, name: str, framework: str) -> str:
    """Adds the model to the dictionary MODELS, as its last entry."""
    for node in ast.parse(text).body:
        is_models = isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "MODELS"
        if is_models and isinstance(node.value, ast.Dict):  # type: ignore[attr-defined]
            last = node.value.values[-1]  # type: ignore[attr-defined]
            return _insert_line(text, last.end_lineno, f'    "{name}": "{framework}",')
    raise PlaceMissing("has no dictionary MODELS")


def _add_to_params(text: str, name: str) -> str:
    """Adds the section behind that of the last model, and its import behind the last one."""
    tree = ast.parse(text)
    imports = [
        node
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("quatrain.models.")
    ]
    sections = [
        part
        for node in tree.body
        if isinstance(node, ast.ClassDef) and node.name == "Params"
        for part in node.body
        if isinstance(part, ast.AnnAssign) and ast.unparse(part.target) in MODELS
    ]
    if not imports or not sections:
        raise PlaceMissing("has no class Params with a section of each model")
    config = f"{class_name(name)}Config"
    text = _insert_line(text, sections[-1].end_lineno, f"    {name}: {config}")
    line = f"from quatrain.models.{name}.config import {config}"
    return _insert_line(text, imports[-1].end_lineno, line)


def _add_to_dvc(text: str, name: str, framework: str) -> str:
    """Adds the slots of the model, the dependencies of the report, and a plot."""
    slots = _template("dvc_slots.yaml", name).replace("FRAMEWORK", framework)
    text = _insert_behind(text, r"^  - models:\n(?:(?: {6,}.*)?\n)*?(?=\n*stages:)", slots)
    deps = _template("dvc_report.yaml", name)
    text = _insert_behind(text, r"^      - baselines/\w+\.json\n", deps)
    return _insert_behind(text, r"^plots:\n(?: .*\n)*", _template("dvc_plots.yaml", name))


def _add_to_contract(text: str, name: str, framework: str) -> str:
    """Adds the package to the import contract of its framework, before the first one there."""
    heading = re.escape(f'name = "{CONTRACTS[framework]}"')
    pattern = rf'({heading}\ntype = "forbidden"\nsource_modules = \[)(\s*)(?=")'
    place = re.search(pattern, text)
    if place is None:
        raise PlaceMissing(f'has no import contract "{CONTRACTS[framework]}"')
    start, space = place.groups()
    entry = f'{start}{space}"quatrain.models.{name}",{space or " "}'
    return text[: place.start()] + entry + text[place.end() :]


def _insert_line(text: str, after: int | None, line: str) -> str:
    lines = text.splitlines()
    assert after is not None
    return "\n".join([*lines[:after], line, *lines[after:]]) + "\n"


def _insert_behind(text: str, pattern: str, addition: str) -> str:
    """Inserts behind the last match of a pattern."""
    matches = list(re.finditer(pattern, text, re.MULTILINE))
    if not matches:
        raise PlaceMissing(f"has nothing like {pattern!r}")
    end = matches[-1].end()
    return text[:end] + addition + text[end:]
