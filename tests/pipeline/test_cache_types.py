"""Each way in which DVC links outs to its cache: the stages read them, and never write through."""

from pathlib import Path

import pytest

from tests.conftest import SMALL
from tests.pipeline.small_checkout import call, clone
from tests.pipeline.small_project import NOBODY, Project

STAGES = ("pipeline.collect", "pipeline.train", "pipeline.evaluate")


@pytest.mark.parametrize(
    ("kind", "model"),
    [
        pytest.param("symlink", "allo", marks=pytest.mark.full),
        pytest.param("hardlink", "iqn", marks=pytest.mark.slow),
        pytest.param("reflink,hardlink,symlink,copy", "actor_critic", marks=pytest.mark.slow),
    ],
)
def test_outs_that_are_links_are_read_and_never_written_through(
    kind: str, model: str, tmp_path: Path
):
    root = clone(tmp_path / "clone")
    project = Project(root, model)
    project.choose(overlay={model: SMALL[model], "checkpoint_seconds": 0})

    def python(*arguments: str) -> str:
        return call(root, "python", "-m", *arguments, MLFLOW_TRACKING_URI=NOBODY)

    python("dvc", "config", "cache.type", kind)
    reproduce = ("dvc", "repro", f"evaluate@{model}")
    assert python(*reproduce).count("Running stage") == 3
    outs = [path for out in (project.data, project.weights) for path in out.iterdir()]
    assert kind != "symlink" or all(path.is_symlink() for path in outs)
    assert kind != "hardlink" or all(path.stat().st_nlink > 1 for path in outs)
    first = project.hashes()
    for seed in (0, 1):
        project.choose(overlay={"seed": seed})
        # Without DVC, which would remove an out before its stage writes it.
        for stage in STAGES:
            python(stage, model)
        assert (project.hashes() == first) == (seed == 0)
    project.choose(overlay={"seed": 0})
    python("dvc", "checkout", "--force", f"data/{model}", f"models/{model}")
    assert "Running stage 'train" not in python(*reproduce)
    assert project.hashes() == first
    python("pipeline", "verify")
