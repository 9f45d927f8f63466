"""What a stage loads, prints and delivers before its training's first yield."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from pipeline.runtime import console
from pipeline.runtime.command import Command
from pipeline.runtime.compile_cache import FOLDER
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch
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


def gone(folder: Path, patch: Patch) -> None:
    (folder / "gone").mkdir()
    patch.chdir(folder / "gone")
    (folder / "gone").rmdir()


def homeless(_: Path, patch: Patch) -> None:
    def nobody(_: int) -> NoReturn:
        raise KeyError

    patch.delenv("HOME")
    patch.setattr("pwd.getpwuid", nobody)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (gone, "the current folder was removed; go to one that is there, then run again"),
        (homeless, f"user {os.getuid()} has no home folder; set HOME to a folder, then run again"),
    ],
)
def test_a_command_without_a_folder_that_all_libraries_ask_for_ends_at_once(
    change: Callable[[Path, Patch], None],
    says: str,
    tmp_path: Path,
    monkeypatch: Patch,
    failure: Callable[..., str],
):
    command = Command("probe", "Works.", lambda _: pytest.fail("it begins"))
    change(tmp_path, monkeypatch)
    assert failure(command, code=5) == f"probe: {says}"


@pytest.mark.parametrize("errors", ["/dev/null", "/dev/full"])
def test_a_full_output_is_exit_5_whether_python_buffers_it_or_not(errors: str):
    code = (
        "import sys; from pipeline.runtime.command import Command\n"
        "def work(_):\n  for _ in range(999): print('x' * 99)\n"
        "sys.exit(Command('probe', 'Prints.', work)([]))"
    )
    environment = {name: os.environ[name] for name in os.environ if name != "PYTHONUNBUFFERED"}
    with Path("/dev/full").open("w") as full, Path(errors).open("w") as err:
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=full, stderr=err
        )
    assert done.returncode == 5
