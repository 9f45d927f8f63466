"""learner -> what MLflow serves: safetensors, JSON and the code of its rooms, without a pickle; kept in the journal."""

import logging
import shutil
import sys
import warnings
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from pipeline.runtime.stage import CHECKOUT, Stage
from pipeline.storage import formats
from pipeline.storage.run_key import file_of, imported_by
from pipeline.tracking.model_aliases import name_of
from pipeline.tracking.run import Run
from pipeline.tracking.store import quieten
from quatrain.registry import Framework, load

SCRIPT = CHECKOUT / "pipeline" / "tracking" / "pyfunc_model.py"
SHARED = ("mlflow", "numpy", "pydantic", "jaxtyping", "safetensors", "scipy")
REQUIREMENTS: dict[Framework, tuple[str, ...]] = {
    "jax": ("jax", "flax", "optax"),
    "torch": ("torch",),
}
"""What the rooms of a framework's models import; inferring it takes MLflow seconds for each model."""


class Exported(NamedTuple):
    """What answering needs, and an example of it."""

    arrays: Mapping[str, np.ndarray]
    request: Mapping[str, np.ndarray]
    answer: Mapping[str, np.ndarray]


def record_model(stage: Stage, run: Run, state: Any, dataset: Any) -> None:
    """Keep in the run's journal what serves the learner, to be registered when it is delivered; once in a run."""
    if run.journal.has_model:
        return
    with TemporaryDirectory() as folder:
        save_model(stage, exported(stage, state, dataset), Path(folder))
        run.journal.model(Path(folder) / "model", name_of(stage.model, stage.params.preset))


def exported(stage: Stage, state: Any, dataset: Any) -> Exported:
    """What the model's room `serve` makes of a learner."""
    serving = load(stage.model).serve
    arrays = serving.export(stage.config, state, dataset)
    request = serving.request(stage.config, dataset)
    return Exported(arrays, request, serving.answer(stage.config, arrays, request))


def save_model(stage: Stage, made: Exported, folder: Path) -> None:
    """Write `folder/model` in MLflow's format: models from code, with signature, example and pinned requirements."""
    config = {"model": stage.model, "config": stage.config.model_dump(mode="json")}
    for name, content in (("config.json", config), ("weights.safetensors", made.arrays)):
        (folder / name).write_bytes(formats.encode(name, content)[0])
    quieten()
    logging.getLogger("mlflow.pyfunc").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # mlflow's own, on type hints and libraries
        import mlflow  # noqa: F401, first: a part of it, asked for while another thread imports it, comes half-made
        from mlflow.models import ModelSignature
        from mlflow.pyfunc import save_model as save

        save(
            str(folder / "model"),
            python_model=str(SCRIPT),
            artifacts={
                "config": str(folder / "config.json"),
                "weights": str(folder / "weights.safetensors"),
            },
            code_paths=[str(copied_code(stage.model, folder))],
            pip_requirements=requirements(stage.framework),
            signature=ModelSignature(*(_schema(named) for named in (made.request, made.answer))),
            input_example=dict(made.request),
            metadata={"quatrain.model": stage.model, "quatrain.preset": stage.params.preset},
        )


def _schema(named: Mapping[str, np.ndarray]) -> Any:
    from mlflow.types import Schema, TensorSpec

    return Schema(
        [TensorSpec(array.dtype, (-1, *array.shape[1:]), name) for name, array in named.items()]
    )


def copied_code(model: str, folder: Path) -> Path:
    """A package of the modules that answering loads, and no others: a server fetches them one by one."""
    import quatrain.params  # noqa: F401, the script that serves reads the config by it

    needed = imported_by({f"quatrain.models.{model}.serve", "quatrain.params"})
    packages = {
        name.rsplit(".", depth)[0] for name in needed for depth in range(1, name.count(".") + 1)
    }
    for source in {file_of(name) for name in (needed | packages) & sys.modules.keys()}:
        target = folder / source.relative_to(CHECKOUT / "src")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    return folder / "quatrain"


def requirements(framework: Framework) -> list[str]:
    """Exact versions of what is imported here; of torch without the name of its build."""
    return [
        f"{name}=={version(name).partition('+')[0]}" for name in (*SHARED, *REQUIREMENTS[framework])
    ]
