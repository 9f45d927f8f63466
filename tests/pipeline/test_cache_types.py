"""Each way in which DVC links outs to its cache: the stages read them, and never write through."""

from pathlib import Path

import pytest

from quatrain.registry import MODELS
from tests.conftest import SMALL
from tests.pipeline.small_checkout import call, clone
from tests.pipeline.small_project import NOBODY, Project

AWAY = {"MLFLOW_TRACKING_URI": NOBODY}
STAGES = ("pipeline.collect", "pipeline.train", "pipeline.evaluate")
MIX = "reflink,hardlink,symlink,copy"
ROWS = [
    pytest.param(kind, model, marks=pytest.mark.full if number == 0 else pytest.mark.slow)
    for number, (kind, model) in enumerate(
        (("symlink", "allo"), ("hardlink", "iqn"), (MIX, "actor_critic"), ("copy", "allo"))
    )
]


def kind_of(path: Path) -> str:
    if path.is_symlink():
        return "symlink"
    return "hardlink" if path.stat().st_nlink > 1 else "copy"


@pytest.mark.parametrize(("kind", "model"), ROWS)
def test_outs_that_are_links_are_read_and_never_written_through(
    kind: str, model: str, tmp_path: Path
):
    assert model in MODELS
    root = clone(tmp_path / "clone")
    project = Project(root, model)
    project.choose(overlay={model: SMALL[model], "checkpoint_seconds": 0})
    call(root, "python", "-m", "dvc", "config", "cache.type", kind)

    def reproduce() -> str:
        said = call(root, "python", "-m", "dvc", "repro", f"evaluate@{model}", **AWAY)
        call(root, "python", "-m", "pipeline.commands.verify")
        return said

    assert reproduce().count("Running stage") == 3
    used = {kind_of(path) for out in (project.data, project.weights) for path in out.iterdir()}
    assert len(used) == 1
    assert used <= set(kind.split(","))
    assert "Running stage" not in reproduce()
    first = project.hashes()
    # Without DVC, which would remove an out before its stage writes it.
    for stage in STAGES:
        call(root, "python", "-m", stage, model, **AWAY)
    assert project.hashes() == first
    project.choose(overlay={"seed": 1})
    for stage in STAGES:
        call(root, "python", "-m", stage, model, **AWAY)
    assert project.hashes() != first
    project.choose(overlay={"seed": 0})
    outs = (f"data/{model}", f"models/{model}")
    call(root, "python", "-m", "dvc", "checkout", "--force", *outs)
    reproduce()
    changed = {out: files for out, files in project.hashes().items() if first.get(out) != files}
    assert changed == {}
    project.choose(overlay={"seed": 1})
    assert reproduce().count("Running stage") == 3
