"""Examples and notebooks run outside of a checkout with the package alone, learn and draw: with
smaller sizes than they have.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch

FOLDER = ROOT / "examples"
FEW_WORLDS, FEW_COLONIES = '{"held_out_worlds": 32}', '"n_outside": 0, "held_out_colonies": 64'
BRIEF: dict[str, dict[str, str]] = {
    "iqn.py": {
        '"turns": 1000,': '"turns": 300, "evaluate_every": 0,',
        "5000}": "1500}",
        "network={": f"collect={FEW_WORLDS}, network={{",
    },
    "actor_critic.py": {"100_000": "20_000", '"n_outside": 0': FEW_COLONIES},
    "jax_models.ipynb": {
        '"steps": 5000, "evaluate_every": 500': '"steps": 2000, "evaluate_every": 2000',
        '"steps": 1000': '"steps": 200, "evaluate_every": 200',
        '"spawn_probability": 0.04': '"spawn_probability": 0.02',  # the program that is there
        '"smoke", env={"agents": 3}': f'"smoke", env={{"agents": 3}}, collect={FEW_WORLDS}',
    },
    "torch_models.ipynb": {
        '"transitions": 300': '"transitions": 150',
        "seeds=3": "seeds=1",
        'preset="smoke"': 'preset="smoke", train={"transitions": 20_000}',
    },
}
"""Per file: what it says of sizes, and what it says in this test."""


def of_return(scores: dict[str, float]) -> bool:
    return scores["return_mean"] > scores["random_return"]


def explores_faster(scores: dict[str, float]) -> bool:
    """Returns whether eigenoptions are better by more than both intervals."""
    states, steps = "states in 1000 steps", "steps to a state"
    gains = {
        states: scores[f"eigenoptions: {states}"] - scores[f"random walk: {states}"],
        steps: scores[f"random walk: {steps}"] - scores[f"eigenoptions: {steps}"],
    }
    return all(
        gain > sum(scores[f"{name}: {what}, half of 95 % interval"] for name in NAMES)
        for what, gain in gains.items()
    )


NAMES = ("eigenoptions", "random walk")
EXAMPLES: dict[str, Callable[[dict[str, float]], bool]] = {
    "eigenoptions": explores_faster,
    "allo": lambda scores: scores["cosine_mean"] > 0.9,
    "iqn": lambda scores: scores["score"] > 0.4,
    "actor_critic": of_return,
    "active_dynamics": lambda scores: (
        scores["field_nrmse.active"] < min(scores["field_nrmse.random"], scores["affine_field"])
    ),
    "own_loop": lambda scores: (
        scores["steps of the last 50"] < 20 < 60 < scores["steps of the first 50"]
    ),
}
NOTEBOOKS: dict[str, dict[str, Callable[[dict[str, float]], bool]]] = {
    "jax_models": {
        "allo": lambda scores: scores["cosine_mean"] > 0.9,
        "iqn": lambda scores: scores["score"] > 0.4,
    },
    "torch_models": {
        "dynamics": lambda scores: scores["field_nrmse.active"] < scores["zero_field"],
        "colonies": of_return,
    },
}


def brief(name: str, text: str) -> str:
    for long, short in BRIEF.get(name, {}).items():
        assert long in text, long
        text = text.replace(long, short)
    return text


def test_every_example_and_notebook_is_run():
    assert {path.stem for path in FOLDER.glob("*.py")} == set(EXAMPLES)
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_and_learns(name: str, tmp_path: Path):
    file = tmp_path / f"{name}.py"
    file.write_text(brief(file.name, (FOLDER / file.name).read_text()))
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, str(file)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    named = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()]
    scores = {name: float(value) for name, value in named}
    assert EXAMPLES[name](scores), scores


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # of the libraries that run notebooks
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_learns_and_draws(name: str, tmp_path: Path, monkeypatch: Patch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    notebook: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    mark = "\n# next cell\n"
    sources = brief(f"{name}.ipynb", mark.join(cell.source for cell in code)).split(mark)
    for cell, source in zip(code, sources, strict=True):
        cell.source = source
    scores = ", ".join(f"{result!r}: {result}.scores" for result in NOTEBOOKS[name])
    last = nbformat.v4.new_code_cell(f"import json; print(json.dumps({{{scores}}}))")
    notebook.cells.append(last)
    settings = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=settings).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    data = [output.get("data", {}) for output in outputs]
    assert len([each for each in data if "image/png" in each]) == 2
    assert len([each for each in data if "image/gif" in each.get("text/html", "")]) == 1
    for result, scored in json.loads(outputs[-1]["text"]).items():
        assert NOTEBOOKS[name][result](scored), scored
