"""learner -> a model that MLflow serves, and its card: safetensors, JSON and the code that answers,
no pickle.
"""

import inspect
import logging
import shutil
import warnings
from collections.abc import Mapping
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from pipeline.runtime.stage import Stage
from pipeline.storage.run_key import CHECKOUT, file_of, imported_by, imports
from pipeline.tracking.registry import registered_name
from pipeline.tracking.run import Run, in_trial
from pipeline.tracking.store import quieten
from quatrain.registry import PACKAGES, Framework
from quatrain.serving import MOST_BYTES, MOST_QUESTIONS, answer
from quatrain.storage import formats

SCRIPT = CHECKOUT / "pipeline" / "tracking" / "pyfunc_model.py"
# Packages that all exported models import, beside those of their framework; inferring them takes
# MLflow seconds for each model.
SHARED = ("mlflow", "numpy", "pydantic", "jaxtyping", "safetensors", "scipy")
# Beside the code of a model: two sections, `## What it is` and `## Limits`.
CARD = "card.md"
LIMITS = "## Limits"
LARGEST_REQUEST = (
    f"A request has 1..{MOST_QUESTIONS:,} questions, and its body at most {MOST_BYTES:,} bytes."
)

Arrays = Mapping[str, np.ndarray]


class Exported(NamedTuple):
    """Holds the arrays that answering needs, with an example request and its answer, whose first
    axis counts questions.
    """

    arrays: Arrays
    request: Arrays
    answer: Arrays


def record_model(stage: Stage, run: Run, state: Any, dataset: Any) -> None:
    """Records the model in the run's outbox, to be registered on delivery; once per run."""
    if run.has("model") or in_trial():
        return
    exported = export(stage, state, dataset)
    with TemporaryDirectory() as folder:
        save_model(stage, exported, Path(folder))
        archive = Path(shutil.make_archive(f"{folder}/archive", "zip", f"{folder}/model"))
        name = registered_name(stage.model, stage.params.preset)
        run.put("model", name, model_card(stage), data=archive.read_bytes())


def export(stage: Stage, state: Any, dataset: Any) -> Exported:
    """Exports a learner by the model's module `serve`, and answers the example request."""
    serve = stage.modules.serve
    arrays = serve.export(stage.config, state, dataset)
    request = serve.request(stage.config, dataset)
    return Exported(arrays, request, answer(stage.model, serve.load(stage.config, arrays), request))


# The model.


def save_model(stage: Stage, exported: Exported, folder: Path) -> None:
    """Writes `folder/model` in MLflow's format, as a model from code, with pinned requirements."""
    config = {"model": stage.model, "config": stage.config.model_dump(mode="json")}
    files = {"config": folder / "config.json", "weights": folder / "weights.safetensors"}
    for file, content in zip(files.values(), (config, exported.arrays), strict=True):
        file.write_bytes(formats.encode(file.name, content)[0])
    quieten()
    logging.getLogger("mlflow.pyfunc").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, about type hints and libraries
        # A part that another thread is importing is incomplete: import the whole first.
        import mlflow

        signature = mlflow.models.infer_signature(dict(exported.request), dict(exported.answer))
        # Marked as one whose model checks its input: MLflow would drop inputs that it does not
        # know, and convert strings and booleans to numbers.
        signature._is_signature_from_type_hint = True
        mlflow.pyfunc.save_model(
            str(folder / "model"),
            python_model=str(SCRIPT),
            artifacts={name: str(file) for name, file in files.items()},
            code_paths=[str(copied_code(stage, folder))],
            pip_requirements=requirements(stage.framework, stage.config.brings_env),
            signature=signature,
            input_example=dict(exported.request),
            metadata={"quatrain.model": stage.model, "quatrain.preset": stage.params.preset},
        )


def copied_code(stage: Stage, folder: Path) -> Path:
    """Copies the modules that the script and a model's package import to answer, and no others;
    returns their package.

    A server downloads the files one by one.
    """
    source = CHECKOUT / "src"
    configs = (source / "quatrain" / "models" / stage.model).rglob("config.py")  # found by name
    names = [".".join(path.relative_to(source).with_suffix("").parts) for path in configs]
    entries = {f"{stage.modules.package}.serve", stage.config.WORLD, *names, *imports(SCRIPT)}
    modules = imported_by(CHECKOUT, entries)
    packages = {
        name.rsplit(".", depth)[0] for name in modules for depth in range(1, name.count(".") + 1)
    }
    for file in {file_of(CHECKOUT, name) for name in modules | packages}:
        target = folder / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    return folder / "quatrain"


def requirements(framework: Framework, brings_env: bool = False) -> list[str]:
    """Returns the installed versions of the packages; torch without the name of its build."""
    further = ("gymnasium",) if brings_env else ()
    packages = (*SHARED, *PACKAGES[framework], *further)
    return [f"{name}=={version(name).partition('+')[0]}" for name in packages]


# Its card.


def model_card(stage: Stage, scores: str = "Not evaluated yet.") -> str:
    """Returns the card in Markdown: what the model is, how to ask it, its scores and limits. Schema
    and dataset are shown by MLflow itself.
    """
    serve = stage.modules.serve
    path = resources.files(stage.modules.package) / CARD
    purpose = f"## What it is\n\n{stage.model}: {serve.__doc__}"
    what, _, limits = (path.read_text() if path.is_file() else purpose).partition(LIMITS)
    how_to_ask = (inspect.getdoc(serve.load) or "").partition("\nRaises:")[0].strip()
    parts = [
        what.strip(),
        f"## How to ask\n\n{how_to_ask}\n\n{LARGEST_REQUEST}",
        f"## Scores (preset {stage.params.preset})\n\n{scores}",
        f"{LIMITS}\n\n{limits.strip() or 'Not written down yet.'}",
    ]
    return "\n\n".join(parts)
