"""a name, a framework -> a further model in this checkout: its folder, and its sections of files
that all models share.
"""

import io
import keyword
import re
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from ruamel.yaml import YAML

from quatrain.errors import ConfigError
from quatrain.params import Params, class_name
from quatrain.registry import MODELS, Framework
from quatrain.storage.atomic_write import sweep_temporaries, write_together

TEMPLATES = Path(__file__).parent.parent / "new_model"
# The model of the templates.
PLACEHOLDER = "sketch"
# Templates for tests/models/NAME; the others go to src/quatrain/models/NAME.
OF_TESTS = ("sizes.py",)
# Files that a section is appended to.
APPENDED = ("params.yaml", "tests/config_limits.txt", "tests/config_refusals.txt")
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
LONGEST_NAME = 24
NEXT = """
{name} is a model of this project: a small learner of a function, to be replaced by yours. Next:
  make repro MODELS={name}    collect, train, evaluate; exit 4: it has no baseline yet
  make promote MODELS={name}  stores its scores as the baseline
CONTRIBUTING.md of quatrain, "Add a model", says how to replace it.\
"""


def create(root: Path, name: str, framework: Framework) -> list[str]:
    """Writes a model, or nothing; returns a line about each file, new or changed.

    Raises:
        ConfigError: the name cannot be used.
        OSError: a file is missing, or the disk is full.
    """
    check_name(name)
    new = _new_files(name, framework)
    for path in new:
        if (root / path).exists():
            raise ConfigError(f"{path} is there already; remove it, or give another name")
    changed = _changed_files(root, name, framework)
    files = {path: text.encode() for path, text in (new | changed).items()}
    for path in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        sweep_temporaries((root / path).parent)
    write_together(root, files)
    # How long the name is decides where lines are wrapped.
    ruff = [sys.executable, "-m", "ruff", "format", "--quiet", "--no-cache"]
    subprocess.run([*ruff, *(path for path in new if path.endswith(".py"))], cwd=root, check=False)
    return [*(f"  new      {path}" for path in new), *(f"  changed  {path}" for path in changed)]


def check_name(name: str) -> None:
    """Raises ConfigError unless a further model may have this name."""
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise ConfigError(
            f"{name!r} is no name of a model; give at most {LONGEST_NAME} small letters, digits "
            "and underscores that begin with a letter, such as my_model"
        )
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        raise ConfigError(f"{name!r} is a keyword of Python; give another name")
    if name in Params.model_fields:
        raise ConfigError(f"{name!r} is a key of params.yaml already; give another name")
    if hasattr(Params, name):
        raise ConfigError(f"{name!r} is a name that pydantic needs; give another name")


def _new_files(name: str, framework: Framework) -> dict[str, str]:
    """Returns the texts of new files by path; `__init__.py`, which makes a model, is the last."""
    files = {
        f"inputs/{name}/.gitkeep": "",
        f"baselines/{name}.json": f'{{"schema": 1, "model": "{name}", "presets": {{}}}}\n',
    }
    for template in sorted([*(TEMPLATES / "common").iterdir(), *(TEMPLATES / framework).iterdir()]):
        folder = "tests" if template.name in OF_TESTS else "src/quatrain"
        files[f"{folder}/models/{name}/{template.name}"] = _filled(template, name)
    declared = f'FRAMEWORK = "{framework}"\nORDER = {len(MODELS) + 1}\n'
    described = f'"""{name}: learns a function of two numbers from samples."""'
    files[f"src/quatrain/models/{name}/__init__.py"] = f"{described}\n\n{declared}"
    return files


def _changed_files(root: Path, name: str, framework: Framework) -> dict[str, str]:
    """Returns the texts of files that get a section of the model."""
    files = {
        path: (root / path).read_text("utf-8") + _filled(TEMPLATES / Path(path).name, name)
        for path in APPENDED
        if (root / path).is_file()  # a project of `quatrain init` has no tables
    }
    sections = _filled(TEMPLATES / "dvc_sections.yaml", name).replace("FRAMEWORK", framework)
    files["dvc.yaml"] = _with_sections((root / "dvc.yaml").read_text("utf-8"), sections)
    return files


def _with_sections(text: str, sections: str) -> str:
    """Returns dvc.yaml with a model's line, dependency of the report, and plots."""
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = sys.maxsize
    yaml.indent(mapping=2, sequence=4, offset=2)
    old, new = yaml.load(text), yaml.load(sections)
    old["vars"][0]["models"].update(new["vars"][0]["models"])
    old["stages"]["report"]["deps"].extend(new["stages"]["report"]["deps"])
    old["plots"].extend(new["plots"])
    result = io.StringIO()
    yaml.dump(old, result)
    return result.getvalue()


def without(text: str, models: Collection[str]) -> str:
    """Returns params.yaml, a preset or dvc.yaml without the sections, dependencies and plots of
    these models, and the comments above them; what stays keeps its bytes.
    """
    entry = rf"( *)(?:- )?(?:reports/)?(?:{'|'.join(models)})\b.*\n"
    return re.sub(rf"(?m)^\n*(?:#.*\n)*{entry}(?:\n*\1 +.*\n)*", "", text)


def _filled(template: Path, name: str) -> str:
    text = template.read_text("utf-8").replace(PLACEHOLDER.capitalize(), class_name(name))
    return re.sub(rf"\b{PLACEHOLDER}\b", name, text)
