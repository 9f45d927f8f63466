"""The notebooks run from the first cell to the last outside of a checkout, learn and draw."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

Scores = dict[str, dict[str, float]]
LEARNS: dict[str, tuple[tuple[str, ...], Callable[[Scores], bool]]] = {
    "jax_models": (
        ("allo", "iqn"),
        lambda scores: scores["allo"]["cosine_mean"] > 0.9 and scores["iqn"]["score"] > 0.5,
    ),
    "torch_models": (
        ("dynamics", "colonies"),
        lambda scores: (
            scores["dynamics"]["field_nrmse.active"] < scores["dynamics"]["zero_field"]
            and scores["colonies"]["return_mean"] > scores["colonies"]["random_return"]
        ),
    ),
}


def test_every_notebook_is_run():
    assert {path.stem for path in (ROOT / "examples").glob("*.ipynb")} == set(LEARNS)


@pytest.mark.full
@pytest.mark.filterwarnings("default")  # of the libraries that run notebooks
@pytest.mark.parametrize("name", LEARNS)
def test_a_notebook_runs_and_learns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.delenv("JAX_DISABLE_MOST_OPTIMIZATIONS", raising=False)
    results, learns = LEARNS[name]
    notebook: Any = nbformat.read(ROOT / "examples" / f"{name}.ipynb", as_version=4)
    scores = "{" + ", ".join(f"{result!r}: {result}.scores" for result in results) + "}"
    notebook.cells.append(nbformat.v4.new_code_cell(f"import json; print(json.dumps({scores}))"))
    settings = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=settings).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert len(pictures) == 2
    films = [
        output for output in outputs if "image/gif" in output.get("data", {}).get("text/html", "")
    ]
    assert len(films) == 1
    (printed,) = [text for text in outputs[-1:] if text.get("name") == "stdout"]
    assert learns(json.loads(printed["text"]))
