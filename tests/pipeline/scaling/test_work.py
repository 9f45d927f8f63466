"""A trial's stages in processes of their own: how they end, and what is read of them meanwhile."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.judging.scores import path_of, read_scores, write_scores
from pipeline.scaling import work
from pipeline.scaling.records import Point
from pipeline.scaling.snapshots import open_storage, restore, save
from pipeline.scaling.work import OutboxTail, Outcome, StageLost, TrialWork
from pipeline.storage.run_key import CHECKOUT
from pipeline.tracking.outbox import Outbox
from quatrain.presets import parse
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import header, until
from tests.pipeline.small_project import Project

STAND_IN = """
import os, pathlib, signal, sys, time
verb = pathlib.Path(__file__).stem
print(verb, sys.argv[1], "at work", flush=True)
order = os.environ.get(f"ORDER_{verb}".upper(), "0")
if order == "wait":
    signal.signal(signal.SIGTERM, lambda *_: (print("saved"), sys.exit(143)))
    print("ready", flush=True)
    time.sleep(60)
if order == "deaf":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("ready", flush=True)
    time.sleep(60)
if order.startswith("-"):
    os.kill(os.getpid(), -int(order))
if order == "0" and verb == "evaluate":
    pathlib.Path("reports/allo").mkdir(parents=True)
    pathlib.Path("reports/allo/scores.json").write_text(os.environ["SCORES"])
print("the reason", file=sys.stderr)
sys.exit(int(order))
"""


@pytest.fixture
def stages(tmp_path: Path) -> Callable[..., TrialWork]:
    """A trial whose stages do as they are told."""
    package = tmp_path / "code" / "pipeline"
    package.mkdir(parents=True)
    for name in ("__init__", "train", "evaluate"):
        (package / f"{name}.py").write_text("" if name == "__init__" else STAND_IN)
    (tmp_path / "trial").mkdir()

    def make(**orders: str) -> TrialWork:
        write_scores(tmp_path, "allo", "default", {}, {"cosine_mean": 0.5, "gap": None})
        scores = path_of(tmp_path, "allo").read_text()
        extra = {"PYTHONPATH": str(package.parent), "SCORES": scores}
        extra |= {f"ORDER_{verb.upper()}": order for verb, order in orders.items()}
        environment = work.stage_environment(1, 0, extra)
        return TrialWork(tmp_path / "trial", "allo", "loss", environment)

    return make


def finish(trial: TrialWork) -> Outcome:
    while (outcome := trial.advance()) is None:
        time.sleep(0.005)
    return outcome


def printed(trial: TrialWork) -> str:
    path = trial.folder / work.LOG
    return path.read_text() if path.exists() else ""


def test_training_then_evaluation_end_with_scores(stages: Callable[..., TrialWork]):
    trial = stages()
    outcome = finish(trial)
    assert (outcome.state, outcome.reason) == ("finished", "")
    assert outcome.scores == {"cosine_mean": 0.5, "gap": None}
    assert 0 < outcome.seconds < 60
    lines = [line for line in printed(trial).splitlines() if "at work" in line]
    assert lines == ["train allo at work", "evaluate allo at work"]
    work.write_outcome(trial.folder, outcome)
    assert work.read_outcome(trial.folder) == outcome


@pytest.mark.parametrize(
    ("code", "state"),
    [(1, "failed"), (2, "refused"), (3, "refused"), (6, "failed"), (7, "diverged")],
)
def test_what_would_happen_on_every_machine_is_an_outcome(
    code: int, state: str, stages: Callable[..., TrialWork]
):
    trial = stages(train=str(code))
    assert finish(trial)._replace(seconds=0.0) == Outcome(state, {}, 0.0, "the reason")
    assert "evaluate" not in printed(trial)
    assert finish(stages(evaluate=str(code))).state == state


@pytest.mark.parametrize(("order", "code"), [("-9", 137), ("-15", 143), ("5", 5), ("130", 130)])
def test_what_another_machine_may_mend_is_lost(
    order: str, code: int, stages: Callable[..., TrialWork]
):
    for verb in ("train", "evaluate"):
        with pytest.raises(StageLost, match=rf"^a stage ended with {code}: "):
            finish(stages(**{verb: order}))


def test_a_trial_that_is_stopped_lets_its_stage_save(stages: Callable[..., TrialWork]):
    trial = stages(train="wait")
    assert trial.advance() is None
    until(lambda: "ready" in printed(trial))
    assert trial.advance() is None
    trial.end()
    assert printed(trial).endswith("ready\nsaved\n")
    trial.end()


def test_a_stage_that_does_not_leave_is_killed(
    stages: Callable[..., TrialWork], monkeypatch: Patch
):
    monkeypatch.setattr(work, "SAVE_SECONDS", 0.1)
    trial = stages(train="deaf")
    trial.advance()
    until(lambda: "ready" in printed(trial))
    process = trial._process
    assert process is not None
    trial.end()
    assert process.code == 137


def test_a_stage_that_prints_nothing_has_a_reason(tmp_path: Path):
    environment = work.stage_environment(1, 0, {"PYTHONPATH": str(tmp_path)})
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "train.py").write_text("raise SystemExit(1)")
    trial = TrialWork(tmp_path, "allo", "loss", environment)
    assert finish(trial).reason == "train@allo printed nothing"


def test_a_stage_knows_nothing_of_ray_dvc_or_the_store(monkeypatch: Patch):
    for name in ("RAY_JOB_ID", "TUNE_DISABLE_SIGINT_HANDLER", "DVC_STAGE", "QUATRAIN_CRASH_AT"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("HOME", "/home/someone")
    environment = work.stage_environment(3, 0, {"QUATRAIN_TRIAL": "{}"})
    of_others = [name for name in environment if name.startswith(("RAY_", "TUNE_", "DVC_"))]
    assert of_others == []
    ours = {name: text for name, text in environment.items() if name.startswith("QUATRAIN_")}
    assert ours == {"QUATRAIN_TRIAL": "{}", "QUATRAIN_PARENT": str(os.getpid())}
    assert (environment["HOME"], environment["NPROC"]) == ("/home/someone", "3")
    assert environment["PYTHONPATH"].split(os.pathsep) == [str(CHECKOUT / "src"), str(CHECKOUT)]
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in environment


@pytest.mark.parametrize(("gpus", "share"), [(0.5, "0.450"), (1, None), (2, None)])
def test_a_part_of_a_gpu_is_a_part_of_its_memory(gpus: float, share: str | None):
    environment = work.stage_environment(1, gpus, {})
    assert environment.get("XLA_PYTHON_CLIENT_MEM_FRACTION") == share


@pytest.mark.parametrize("text", ["", "{", "[]", '{"state": "finished"}', '{"colour": 1}'])
def test_a_damaged_outcome_is_none(text: str, tmp_path: Path):
    assert work.read_outcome(tmp_path) is None
    (tmp_path / work.OUTCOME).write_text(text)
    assert work.read_outcome(tmp_path) is None


def test_a_folder_holds_the_params_and_files_of_its_trial(tmp_path: Path):
    params = {"seed": 1, "allo": {"train": {"discount": [0.9, 0.8], "rate": 1e-5, "clip": None}}}
    work.prepare(tmp_path, params, {"inputs/allo/map.txt": b"#.#", "baselines/allo.json": b"{}"})
    assert parse(tmp_path / "params.yaml") == params
    assert (tmp_path / "inputs" / "allo" / "map.txt").read_bytes() == b"#.#"


def test_a_trial_does_not_continue_from_one_of_its_name_with_other_params(tmp_path: Path):
    params = {"seed": 1, "allo": {"train": {"discount": [0.9, 0.8], "rate": 1e-5}}}
    others = {"seed": 1, "allo": {"train": {"discount": [0.9, 0.8], "rate": 1e-4}}}
    storage = open_storage(str(tmp_path / "storage"), "tried")
    for name, of_trial in (("same", params), ("other", others)):
        folder = tmp_path / name
        folder.mkdir()
        work.prepare(folder, of_trial, {"models/allo/history.csv": b"step"})
        work.write_outcome(folder, Outcome("finished", {"cosine_mean": 0.5}, 1.0))
        save(storage, "0004", folder)
        target = tmp_path / f"restored-{name}"
        target.mkdir()
        restore(storage, "0004", target)
        work.discard_another(target, params)
        restored = work.read_outcome(target)
        assert (restored is not None) == (name == "same")
        assert bool(list(target.iterdir())) == (name == "same")


# The outbox of the training.


def outbox_of(folder: Path, name: str = "train@allo-1") -> Outbox:
    outbox = Outbox(folder / ".state" / "outbox" / f"{name}.sqlite")
    outbox.begin(header("k1"))
    return outbox


def test_new_rows_of_the_watched_metric_are_read_once(tmp_path: Path):
    tail = OutboxTail(tmp_path, "train@allo", "train/loss")
    assert tail.read() == []
    outbox = outbox_of(tmp_path)
    assert tail.read() == []
    outbox.metrics([("train/loss", 10, 0.5), ("train/other", 12, 1.0), ("system/cpu", 90, 1.0)])
    outbox.metrics([("train/loss", 20, 0.25)])
    assert tail.read() == [Point(step=10, value=0.5), Point(step=20, value=0.25)]
    assert tail.read() == []
    assert (tail.names, tail.step) == ({"train/loss", "train/other"}, 20)
    outbox.metrics([("train/loss", 30, float("nan")), ("train/loss", 40, 1.0)])
    assert tail.read() == [Point(step=40, value=1.0)]


def test_only_the_outbox_of_the_training_is_read(tmp_path: Path):
    older = outbox_of(tmp_path, "train@allo-0")
    older.metrics([("train/loss", 1, 9.0)])
    other = outbox_of(tmp_path, "evaluate@allo-1")
    other.metrics([("train/loss", 2, 8.0)])
    os.utime(older.path, (1, 1))
    outbox_of(tmp_path).metrics([("train/loss", 3, 7.0)])
    tail = OutboxTail(tmp_path, "train@allo", "train/loss")
    assert tail.read() == [Point(step=3, value=7.0)]


def test_the_outbox_of_another_type_of_machine_is_followed(tmp_path: Path):
    tail = OutboxTail(tmp_path, "train@allo", "train/loss")
    first = outbox_of(tmp_path)
    first.metrics([("train/loss", 900, 0.5)])
    os.utime(first.path, (1, 1))
    assert tail.read() == [Point(step=900, value=0.5)]
    outbox_of(tmp_path, "train@allo-2").metrics([("train/loss", 100, 2.0)])
    assert tail.read() == [Point(step=100, value=2.0)]
    assert tail.step == 100


def test_a_killed_stage_gets_an_end_and_a_finished_one_keeps_its_own(tmp_path: Path):
    killed, finished = outbox_of(tmp_path, "train@allo-0"), outbox_of(tmp_path, "train@allo-1")
    finished.end("FINISHED")
    for outbox in (killed, finished):
        outbox.end_killed()
        outbox.end_killed()
    ends = [[end.body for end in outbox.records("end")] for outbox in (killed, finished)]
    assert ends == [["KILLED"], ["FINISHED"]]


def test_the_digest_of_the_code_changes_with_any_file(tmp_path: Path, monkeypatch: Patch):
    for name in ("src/quatrain/a.py", "pipeline/b.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    monkeypatch.setattr(work, "CHECKOUT", tmp_path)
    before = work.code_digest()
    (tmp_path / "elsewhere.py").write_text("")
    assert work.code_digest() == before
    (tmp_path / "pipeline" / "b.py").write_text("1")
    assert work.code_digest() != before


@pytest.mark.full
def test_a_trial_makes_the_bytes_of_the_stages(tmp_path: Path):
    project = Project.create(tmp_path / "project")
    project.choose({"device": "cpu", "threads": 1})
    trial = project.copied(tmp_path / "trial")
    environment = work.stage_environment(1, 0, {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1"})
    for verb in ("collect", "train", "evaluate"):
        stage = work.StageProcess(project.root, verb, "allo", environment)
        assert stage.wait() == 0, stage.reason()
        stage.end()
    params = parse(project.root / "params.yaml")
    files = {
        str(path.relative_to(project.root)): path.read_bytes()
        for path in (project.root / "data").rglob("*")
        if path.is_file()
    }
    work.prepare(trial.root, params, files)
    outcome = finish(TrialWork(trial.root, "allo", "cosine_mean", environment))
    assert outcome.state == "finished", outcome
    assert trial.hashes("models") == project.hashes("models") != {}
    scores = read_scores(project.root, "allo").scores
    assert outcome.scores == read_scores(trial.root, "allo").scores == scores
