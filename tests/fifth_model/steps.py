"""the five steps of CONTRIBUTING.md -> a copy of the project with a fifth model."""

import shutil
from pathlib import Path

from pipeline.dvc import workspace
from tests.conftest import ROOT

FIXTURE = Path(__file__).parent
NEW = ("src", "baselines", "inputs")
"""Folders of the model's files, at their places in a project."""

TABLE = "dict[str, dict[str, Any]] = {\n"
IMPORT = "from quatrain.models.tides.config import TidesConfig\n"

PARAMS = """
tides:
  seeds: 1
  env:
    noise: 0.2
  collect:
    readings: 2000
    held_out_readings: 500
  network:
    harmonics: 6
  train:
    steps: 2000
    batch_size: 32
    learning_rate: 0.01
    record_every: 100
  evaluate:
    points: 200
"""
SLOTS = """\
      tides:
        env: src/quatrain/envs/harbour.py
        collect_deps: src/quatrain/replay/__init__.py
        replay: src/quatrain/replay/__init__.py
        framework: src/quatrain/frameworks/jax
        train_deps: src/quatrain/models/tides/__init__.py
"""
REPORTED = """\
      - reports/tides/scores.json
      - reports/tides/verdict.json
      - reports/tides/plots
      - models/tides
      - baselines/tides.json
"""
SMALL = """\
    "tides": {
        "env": {"noise": 0.1},
        "collect": {"readings": 300, "held_out_readings": 40},
        "network": {"harmonics": 5},
        "train": {"steps": 60, "batch_size": 16, "learning_rate": 0.02, "record_every": 20},
    },
"""
QUICK = """    "tides": {"train": {"steps": 240}},\n"""
SCORES = """    "tides": {"rmse": 0.02, "constant_rmse": 0.8},\n"""


def copy_of_the_project(root: Path) -> None:
    """Copies the files that git lists, except for the tests of the fifth model."""
    for name in sorted(workspace.files_of_git(ROOT)):
        if (ROOT / name).is_file() and not name.startswith("tests/fifth_model/"):
            workspace.copy_if_changed(ROOT / name, root / name)


def add_the_model(root: Path) -> None:
    """Performs the five steps."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in NEW:
        shutil.copytree(FIXTURE / name, root / name, dirs_exist_ok=True, ignore=ignored)
    with (root / "params.yaml").open("a") as file:
        file.write(PARAMS)
    contract = 'a JAX model never imports torch"\ntype = "forbidden"\nsource_modules = ['
    for name, after, text in (
        ("src/quatrain/registry.py", "MODELS: dict[str, Framework] = {", '"tides": "jax", '),
        ("src/quatrain/params.py", "import IqnConfig\n", IMPORT),
        ("src/quatrain/params.py", "    iqn: IqnConfig\n", "    tides: TidesConfig\n"),
        ("pyproject.toml", contract, '"quatrain.models.tides", '),
        ("dvc.yaml", "  - models:\n", SLOTS),
        ("dvc.yaml", "      - baselines/allo.json\n", REPORTED),
        ("tests/conftest.py", f"SMALL: {TABLE}", SMALL),
        ("tests/conftest.py", f"QUICK: {TABLE}", QUICK),
        ("tests/pipeline/scored_workspace.py", f"SCORES: {TABLE}", SCORES),
    ):
        content = (root / name).read_text()
        assert content.count(after) == 1, f"{name}: {after!r}: {content.count(after)} times"
        (root / name).write_text(content.replace(after, after + text))
