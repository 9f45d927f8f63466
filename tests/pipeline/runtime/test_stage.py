"""How a stage begins, what it refuses, and how it ends when it is interrupted: an exit code, one
line, and nothing half-written.
"""

import importlib
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import pipeline
from pipeline.runtime import processes, stage
from pipeline.runtime.errors import Interrupted
from pipeline.runtime.processes import (
    ENDING,
    PARENT_VARIABLE,
    Signals,
    die_with_parent,
    folder_lock,
)
from pipeline.runtime.stage import prepare_process
from quatrain.registry import MODELS
from quatrain.storage import folders
from tests.conftest import params_with
from tests.pipeline.fixture_types import Capture, Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_checkout import call
from tests.pipeline.small_project import (
    Ended,
    Pretended,
    Project,
    ended,
    flip_bit,
    interrupted,
    last_line,
    lines_until,
    orphans,
)

CONTINUES = "the next run continues"

# How it begins.

HEAVY = {"mlflow", "dvc", "pandas", "sqlalchemy", "sklearn", "requests", "flask"}
DRAWING = {"matplotlib", "PIL"}
OTHERS: dict[str, set[str]] = {"jax": {"torch"}, "torch": {"jax", "jaxlib", "flax", "optax"}}
VERBS = """
import os, sys
from pipeline.runtime import stage
from pipeline.stages import collect, train
from pipeline.tracking import run
run.FIRST_SECONDS = 1e6  # a delivery loads mlflow, in a thread of its own
def loaded(verb):
    print("loaded", verb, *sorted({name.partition(".")[0] for name in sys.modules}))
model = sys.argv[1]
assert stage.main("collect", "", collect.collect, [model]) == 0
loaded("collect")
def first_yield(*_):
    loaded("train")
    sys.stdout.flush()
    os._exit(0)
train.rows = first_yield  # which is called before anything is recorded
stage.main("train", "", train.train, [model])
"""


@pytest.mark.parametrize("model", [pytest.param("allo", marks=pytest.mark.full), "active_dynamics"])
def test_a_stage_loads_its_framework_and_no_more_than_it_needs(model: str, tmp_path: Path):
    root = Project.create(tmp_path / "project", model, code=True).root
    store = {"MLFLOW_TRACKING_URI": f"sqlite:///{root}/mlflow.db"}
    said = call(root, "python", "-c", VERBS, model, **store).splitlines()
    lines = [line.split() for line in said if line.startswith("loaded ")]
    result = {verb: set(packages) for _, verb, *packages in lines}
    assert set(result) == {"collect", "train"}
    assert MODELS[model] in result["train"]
    for verb, packages in result.items():
        assert not packages & (HEAVY | DRAWING | OTHERS[MODELS[model]]), verb


def test_a_warning_is_a_plain_line(monkeypatch: Patch, capsys: Capture):
    monkeypatch.setattr(os, "environ", os.environ.copy())
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    prepare_process(params_with({}))
    warnings.showwarning("allo: error grew;\nlower allo.train.learning_rate", UserWarning, "a", 1)
    said = capsys.readouterr().err
    assert said == "warning: allo: error grew; lower allo.train.learning_rate\n"


@pytest.mark.parametrize("setting", [None, "Zen"])
def test_blas_uses_the_kernels_of_every_avx2_processor_unless_told_otherwise(
    setting: str | None, monkeypatch: Patch
):
    others = {name: text for name, text in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    monkeypatch.setattr(os, "environ", others | ({"OPENBLAS_CORETYPE": setting} if setting else {}))
    importlib.reload(pipeline)
    has_avx2 = " avx2 " in Path("/proc/cpuinfo").read_text()
    assert os.environ.get("OPENBLAS_CORETYPE") == (setting or ("Haswell" if has_avx2 else None))


# What it refuses: nothing is written.


@pytest.mark.parametrize(
    ("verb", "file"),
    [
        ("train", "data/allo/dataset.safetensors"),
        ("evaluate", "data/allo/manifest.json"),
        ("evaluate", "models/allo/weights.safetensors"),
        ("evaluate", "models/allo/state.safetensors"),
    ],
)
def test_a_file_with_a_flipped_bit_is_never_used(
    evaluated: Project, verb: str, file: str, capsys: Capture
):
    shutil.rmtree(evaluated.root / ".state")
    flip_bit(evaluated.root / file)
    before = evaluated.hashes()
    assert evaluated.call(verb) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"{verb}@allo: {file}: ")
    assert "`dvc checkout --force`" in line
    assert evaluated.hashes() == before
    assert not (evaluated.root / ".state").exists()


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"allo": {"network": {"hidden": 17}}}, "allo.network.hidden = "),
        ({"threads": 1}, "threads = "),
    ],
)
def test_a_learner_of_another_config_or_other_data_is_not_evaluated(
    evaluated: Project, changed: dict[str, Any], key: str, capsys: Capture
):
    model, before = evaluated.model, evaluated.hashes("reports")
    params = (evaluated.root / "params.yaml").read_text()
    evaluated.choose(overlay=changed)
    assert evaluated.call("evaluate") == 3
    line = last_line(capsys)
    assert line.startswith(f"evaluate@{model}: models/{model}: was trained with {key}")
    remedy = f"run `dvc repro --force --single-item train@{model}` [exit 3]"
    assert line.endswith(f"; set that back, or {remedy}")

    (evaluated.root / "params.yaml").write_text(params)
    dataset, _, _ = folders.load(evaluated.data)
    folders.save(evaluated.data, dataset, {"stage": "of another seed"})
    assert evaluated.call("evaluate") == 3
    assert last_line(capsys) == (
        f"evaluate@{model}: models/{model}: was trained on another dataset than data/{model} "
        f"holds; {remedy}"
    )
    assert evaluated.hashes("reports") == before


@pytest.fixture
def begin(collected: Project, monkeypatch: Patch) -> Callable[..., int]:
    """Begins a training in this process, whose settings stay; returns its exit code."""
    assert Path.cwd() == collected.root
    for name in ("prepare_process", "enable_jax_cache", "gc"):
        monkeypatch.setattr(stage, name, Mock())
    return lambda body: stage.main("train", "", body, ["allo"], patience_seconds=0.2)


def test_a_second_stage_of_one_name_is_refused_and_names_the_first(
    collected: Project, begin: Callable[..., int], capsys: Capture
):
    with folder_lock(collected.root / ".state" / "locks" / "train@allo"):
        assert begin(lambda *_: pytest.fail("it ran")) == 5
    said = f"train@allo: train@allo is at work in process {os.getpid()}; wait"
    assert last_line(capsys).startswith(said)
    assert begin(lambda *_: None) == 0


@pytest.mark.parametrize(("new", "code"), [("seed:  ", 0), ("seed: 1", 3)])
def test_what_was_edited_while_a_stage_ran_is_not_recorded_as_what_made_it(
    new: str, code: int, collected: Project, begin: Callable[..., int], capsys: Capture
):
    def edit(*_: object) -> None:
        path = collected.root / "params.yaml"
        path.write_text(path.read_text().replace("seed: ", new, 1))

    assert begin(edit) == code
    why = "train@allo: code, inputs or params of allo changed while this stage ran, so that what"
    assert (why in capsys.readouterr().err) == (code == 3)


def test_a_file_where_a_folder_belongs_is_named_and_kept(evaluated: Project, capsys: Capture):
    shutil.rmtree(evaluated.root / "models")
    (evaluated.root / "models").write_text("a user's own\n")
    assert evaluated.call("train") == 3
    assert last_line(capsys).startswith("train@allo: models: is in the way; move it elsewhere")
    assert (evaluated.root / "models").read_text() == "a user's own\n"


# Signals.


def test_what_fails_after_a_signal_is_an_interruption(evaluated: Project, capsys: Capture):
    flip_bit(evaluated.data / "manifest.json")
    assert evaluated.call("evaluate", Pretended(signal.SIGINT)) == 130
    assert last_line(capsys) == f"evaluate@allo: interrupted by SIGINT; {CONTINUES} [exit 130]"


@pytest.fixture
def received() -> Signals:
    return Signals()


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_a_stage_at_once_until_there_is_something_to_save(
    number: signal.Signals, received: Signals, capfd: pytest.CaptureFixture[str]
):
    with pytest.raises(Interrupted):
        os.kill(os.getpid(), number)
    received.working = True
    os.kill(os.getpid(), number)
    assert capfd.readouterr().err == f"{number.name}: saving, then leaving (Ctrl-C: at once)\n"
    with pytest.raises(Interrupted, match=f"^interrupted by {number.name}; {CONTINUES}$"):
        received.check()


def test_a_second_sigterm_is_no_hurry_and_a_second_sigint_is(received: Signals, monkeypatch: Patch):
    """A group that is ended sends SIGTERM twice: itself, and by the death of dvc."""
    left: list[int] = []
    monkeypatch.setattr(os, "_exit", left.append)
    received.working = True
    for number in (signal.SIGTERM, signal.SIGTERM):
        os.kill(os.getpid(), number)
    assert left == []
    os.kill(os.getpid(), signal.SIGINT)
    assert left == [130]


@pytest.mark.parametrize(
    ("variables", "parent", "dies"),
    [
        ({"DVC_STAGE": "x"}, "/sbin/init", True),
        ({"DVC_STAGE": "x"}, "/usr/bin/dvc", False),
        ({}, "/sbin/init", False),
        ({PARENT_VARIABLE: "12"}, "/usr/bin/dvc", True),
    ],
)
def test_a_stage_whose_parent_was_dead_before_it_could_ask_does_not_begin(
    variables: dict[str, str], parent: str, dies: bool, monkeypatch: Patch
):
    monkeypatch.setattr(processes, "parent_death_signal", lambda: lambda: None)
    monkeypatch.setattr(os, "getppid", lambda: 1)
    monkeypatch.setattr(os, "environ", variables)
    monkeypatch.setattr(Path, "read_bytes", lambda _: parent.encode())
    if not dies:
        return die_with_parent()
    with pytest.raises(Interrupted):
        die_with_parent()


# Processes of their own, ended for real.


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With data and a copy of the code."""
    project = Project.create(tmp_path_factory.mktemp("ready") / "project", code=True)
    assert project.run("collect").code == 0
    return project


@pytest.mark.full
def test_ctrl_c_while_modules_are_imported_is_one_line(project: Project):
    # What starts the tests may have had SIGINT ignored (a shell does it to background jobs).
    module = project.root / "safetensors.py"
    module.write_text(
        "import os, signal, time; signal.signal(2, signal.default_int_handler)\n"
        "os.kill(os.getpid(), 2); time.sleep(60)\n"
    )
    line = "train@allo: interrupted by SIGINT [exit 130]"
    try:
        assert project.run("train") == Ended(130, [line])
    finally:
        module.unlink()


AS_DVC = "import subprocess as s, sys; s.run([sys.executable, '-m', 'pipeline.train', 'allo'])"


@pytest.mark.full
def test_a_training_that_is_killed_interrupted_or_left_by_its_dvc_ends_with_the_same_bytes(
    project: Project, tmp_path: Path
):
    undisturbed = project.copied(tmp_path / "undisturbed")
    assert undisturbed.run("train").code == 0
    assert project.run("train", QUATRAIN_CRASH_AT="60").code == -signal.SIGKILL
    done = interrupted(project.start("train"), signal.SIGINT, r"/240 ")
    assert done.code == 130
    assert f"interrupted by SIGINT; {CONTINUES} [exit 130]" in done.said
    assert "SIGINT: saving, then leaving (Ctrl-C: at once)" in done.lines
    dvc = project.start("-c", AS_DVC, DVC_STAGE="train@allo")
    lines_until(dvc.stderr, r"/240 ")
    dvc.kill()
    assert ended(dvc).said == f"train@allo: interrupted by SIGTERM; {CONTINUES} [exit 143]"
    until(lambda: not orphans(project))
    last = project.run("train")
    assert last.code == 0, last.lines
    assert project.hashes("models") == undisturbed.hashes("models")
    assert project.history_steps() == undisturbed.history_steps()
