"""Tests that the page of differences has what differs from a commit, and nothing else."""

import re
from pathlib import Path

import pytest
from dvc.repo import Repo

from pipeline.cli import main
from pipeline.storage.figures import encode
from quatrain.plots import Figure
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.small_checkout import git

PLOTS = """
plots:
  - loss:
      x: step
      y_label: a unit
      y: {reports/allo/curves/loss.csv: loss, reports/allo/curves/graph.csv: graph}
  - cosine:
      x: step
      y_label: a unit
      y: {reports/allo/curves/cosine.csv: cosine}
"""


def write_curve(root: Path, name: str, value: float) -> None:
    path = root / "reports" / "allo" / "curves" / f"{name}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"step,{name}\n1,{value}\n2,0.5\n")


def write_picture(root: Path, name: str, width: int, caption: str = "") -> None:
    figure = Figure(figsize=(width, 1))
    figure.subplots()
    figure.set_label(caption)
    path = root / "reports" / "allo" / "plots" / f"{name}.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode({name: figure})[path.name])


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A repository with curves and pictures in a commit."""
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q")
    Repo.init(str(tmp_path)).close()
    (tmp_path / "dvc.yaml").write_text(PLOTS)
    for name in ("loss", "graph", "cosine"):
        write_curve(tmp_path, name, 1.0)
    for name in ("vectors", "visits"):
        write_picture(tmp_path, name, 2)
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "results")
    return tmp_path


def test_the_page_has_curves_and_pictures_that_differ_and_needs_no_script(
    checkout: Path, capsys: Capture
):
    write_curve(checkout, "loss", 2.0)
    write_picture(checkout, "vectors", 3)
    write_picture(checkout, "visits", 2, "another caption")
    write_picture(checkout, "added", 2)
    assert main(["plots"]) == 0
    said = "changed since HEAD: curves 1, pictures 2"
    assert capsys.readouterr().out == f"plots: {said}: dvc_plots/differences.html\n"
    text = (checkout / "dvc_plots" / "differences.html").read_text()
    assert '<meta charset="utf-8">' in text
    assert "<script" not in text
    pictures = re.findall(r'alt="(.+?)"', text)
    vectors = "reports/allo/plots/vectors.png"
    assert pictures == ["loss.png", "reports/allo/plots/added.png", vectors, vectors]


@pytest.mark.usefixtures("checkout")
def test_a_commit_that_is_none_is_named(failure: Failure):
    assert failure(main, "plots", "nowhere", code=2) == (
        "plots: nowhere: is no commit here; `git log` lists them"
    )
