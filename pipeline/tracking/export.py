"""learner -> a model that MLflow serves, and its card: safetensors, JSON and the code that answers,
no pickle.
"""

import inspect
import shutil
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
    """Records what a model is made of in the run's outbox; who delivers it, builds and registers
    it (`registry.built`): a stage need not load mlflow. Once per run.
    """
    if run.has("model") or in_trial():
        return
    exported = export(stage, state, dataset)
    with TemporaryDirectory() as folder:
        pack(stage, exported, Path(folder, "parts"))
        archive = Path(shutil.make_archive(f"{folder}/archive", "zip", f"{folder}/parts"))
        name = registered_name(stage.model, stage.params.preset)
        run.put("model", name, model_card(stage), data=archive.read_bytes())


def export(stage: Stage, state: Any, dataset: Any) -> Exported:
    """Exports a learner by the model's module `serve`, and answers the example request."""
    serve = stage.modules.serve
    arrays = serve.export(stage.config, state, dataset)
    request = serve.request(stage.config, dataset)
    return Exported(arrays, request, answer(stage.model, serve.load(stage.config, arrays), request))


# The model.


def pack(stage: Stage, exported: Exported, folder: Path) -> None:
    """Writes what `registry.built` makes a model from: code, and all that it answers by."""
    copy_code(stage, folder)
    shutil.copyfile(SCRIPT, folder / SCRIPT.name)
    contents = {
        "config.json": {"model": stage.model, "config": stage.config.model_dump(mode="json")},
        "weights.safetensors": exported.arrays,
        "request.safetensors": exported.request,
        "answer.safetensors": exported.answer,
        "settings.json": {
            "pip_requirements": requirements(stage.framework, stage.config.brings_env),
            "metadata": {"quatrain.model": stage.model, "quatrain.preset": stage.params.preset},
        },
    }
    for name, content in contents.items():
        (folder / name).write_bytes(formats.encode(name, content)[0])


def copy_code(stage: Stage, folder: Path) -> None:
    """Copies the modules that the script and a model's package import to answer, and no others.

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
