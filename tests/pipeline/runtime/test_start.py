"""What a stage loads, prints and delivers before its training's first yield."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runtime import console
from pipeline.runtime.compile_cache import FOLDER
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.small_checkout import call
from tests.pipeline.small_project import Ended, Project, each_model

HEAVY = {"mlflow", "dvc", "pandas", "sqlalchemy", "sklearn", "requests", "flask"}
DRAWING = {"matplotlib", "PIL"}
OTHERS: dict[str, set[str]] = {"jax": {"torch"}, "torch": {"jax", "jaxlib", "flax", "optax"}}
VERBS = """
import os, sys
from pipeline.runtime import stage
from pipeline.stages import collect, train
from pipeline.tracking import run
run.LATEST_SECONDS = 1e6
def loaded(verb):
    print("loaded", verb, *sorted({name.partition(".")[0] for name in sys.modules}))
model = sys.argv[1]
assert stage.main("collect", "", collect.collect, [model]) == 0
loaded("collect")
def first_yield(*_):
    loaded("train")
    from pipeline.stages import evaluate
    from quatrain.registry import load
    load(model).evaluate
    load(model).plots
    loaded("evaluate")
    sys.stdout.flush()
    os._exit(0)
train.rows = first_yield  # which is called before anything is recorded
stage.main("train", "", train.train, [model])
"""


@pytest.mark.parametrize("model", each_model("active_dynamics"))
def test_a_stage_loads_its_framework_and_no_more_than_it_needs(model: str, tmp_path: Path):
    root = Project.create(tmp_path / "project", model, code=True).root
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db"}
    said = call(root, "python", "-c", VERBS, model, **store).splitlines()
    lines = [line.split() for line in said if line.startswith("loaded ")]
    result = {verb: set(packages) for _, verb, *packages in lines}
    assert set(result) == {"collect", "train", "evaluate"}
    framework = MODELS[model]
    assert framework in result["train"]
    if framework == "torch":
        assert not (root / FOLDER).exists(), "torch has no compiled programs to keep"
    for verb in ("collect", "train"):
        assert not result[verb] & (HEAVY | DRAWING | OTHERS[framework]), verb
    assert not result["evaluate"] & (HEAVY | OTHERS[framework])


def test_a_warning_is_a_plain_line():
    code = (
        "import sys, warnings; from pathlib import Path\n"
        "from pipeline.runtime import stage\n"
        "from pipeline.storage import params_file\n"
        "stage.prepare_process(params_file.read_params(Path(sys.argv[1])))\n"
        "warnings.warn('allo: total_error grew;\\nlower allo.train.learning_rate')"
    )
    expected = ["warning: allo: total_error grew; lower allo.train.learning_rate"]
    done = Project(ROOT).run("-c", code, str(ROOT))
    assert done == Ended(0, expected)


def test_a_line_to_a_reader_that_has_gone_stops_nothing():
    read, write = os.pipe()
    os.close(read)
    code = (
        "from pipeline.runtime import console; console.info('x'); console.info('y'); import "
        "os; os._exit(42)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, stderr=write, env=os.environ | {"PYTHONPATH": "src"}
    )
    os.close(write)
    assert done.returncode == 42
    console.info("to a reader that listens")


def test_blas_uses_the_kernels_of_every_avx2_processor_unless_told_otherwise():
    code = "import os, pipeline; print(os.environ.get('OPENBLAS_CORETYPE'))"
    kernels: list[str] = []
    for setting in ({}, {"OPENBLAS_CORETYPE": "Zen"}):
        environment = {"PYTHONPATH": os.environ["PYTHONPATH"]} | setting
        kernels.append(
            subprocess.run(
                [sys.executable, "-c", code],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
        )
    has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text()
    assert kernels == ["Haswell" if has_avx2 else "None", "Zen"]
