"""What several tests of trials need."""

import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from pipeline.trials import space
from tests.conftest import ROOT
from tests.pipeline.small_checkout import git
from tests.pipeline.small_project import Project

MODELS = "src/quatrain/models"
PRINTING = {f"{MODELS}/allo/train.py": ("WEIGHTS = ", 'print("of the commit")\nWEIGHTS = ')}
TOLERANCE, WORLDS = "degeneracy_tol: 0.02", "held_out_worlds: 512"
BRANCHES: dict[str, dict[str, tuple[str, str]]] = {
    "code": PRINTING,
    "keys": {
        f"{MODELS}/allo/config.py": ("degeneracy_tol:", "of_old: int\n    degeneracy_tol:"),
        "params.yaml": (TOLERANCE, f"of_old: 3\n    {TOLERANCE}"),
        "dvc.yaml": ("'${key}.collect']", "'${key}.collect', '${key}.evaluate']"),
    },
    "others": {
        f"{MODELS}/iqn/config.py": ("held_out_worlds:", "of_old: int\n    held_out_worlds:"),
        "params.yaml": (WORLDS, f"of_old: 3\n    {WORLDS}"),
    },
    "refused": {**PRINTING, "params.yaml": (TOLERANCE, f"of_nobody: 3\n    {TOLERANCE}")},
}
"""Branch -> file -> a text and what it is replaced by."""


@pytest.fixture(autouse=True, scope="module")
def params_are_read_once() -> Iterator[None]:
    """For many sweeps of the same params.yaml, whose reading takes longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(space, "read_raw", cache(space.read_raw))
        yield


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """What params.yaml needs, to be changed."""
    for name in ("inputs", "baselines", "presets"):
        shutil.copytree(ROOT / name, tmp_path / "root" / name)
    shutil.copy(ROOT / "params.yaml", tmp_path / "root")
    return tmp_path / "root"


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small copy of this checkout in git, after a commit of params.yaml alone, `old`, and one of
    all, `promoted`; `main` has one more, which names the key of a baseline again. The other
    branches are edits of `promoted`.
    """
    root = Project.create(tmp_path_factory.mktemp("repository") / "root", code=True).root
    shutil.copy(ROOT / "dvc.yaml", root)
    (root / ".gitignore").write_text("__pycache__/\n.state/\n")
    git(root, "init", "-q")
    for name, path in (("old", "params.yaml"), ("promoted", ".")):
        git(root, "add", path)
        git(root, "commit", "-qm", name)
        git(root, "branch", name)
    for name, edits in BRANCHES.items():
        git(root, "checkout", "-qb", name, "promoted")
        for path, (old, new) in edits.items():
            text = (root / path).read_text()
            assert old in text
            (root / path).write_text(text.replace(old, new, 1))
        git(root, "commit", "-qam", name)
    git(root, "checkout", "-q", "main")
    text = (root / "baselines" / "allo.json").read_text()
    (root / "baselines" / "allo.json").write_text(text.replace("{", f'{{"again": {text}, ', 1))
    with (root / "presets" / "smoke.yaml").open("a") as preset:
        preset.write("\n")
    git(root, "commit", "-qam", "a <later> one")
    return root
