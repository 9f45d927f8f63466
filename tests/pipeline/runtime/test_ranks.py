"""Ranks that a launcher started: they train as one, are refused as one, and end together."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from pipeline.runtime import meeting as meetings
from pipeline.runtime import ranks
from pipeline.runtime.errors import ConfigError, Interrupted
from pipeline.runtime.meeting import Meeting, RanksDiffer
from pipeline.runtime.ranks import ALONE, Place
from quatrain.errors import RankLost, TrainingDiverged
from tests.pipeline.faulty_server import free_port
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.small_project import Ended, Pretended, Project, ended, lines_until, orphans

Process = subprocess.Popen[str]
LOOPBACK = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
LOST = "actor_critic: another rank has ended or hangs, and its output says why ("


def variables(rank: int, size: int = 2, port: int = 29500, local_rank: int = 0) -> dict[str, str]:
    """What torchrun would set for a rank on a machine of its own, or beside those before it."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_rank + 1),
        "MASTER_PORT": str(port),
        "MASTER_ADDR": "127.0.0.1",
    }


# Where this process is.


def test_the_launcher_says_which_rank_a_process_is():
    assert ranks.read_place({}) == ALONE
    assert ranks.read_place(variables(1, 3, local_rank=1)) == Place(1, 3, 1, 2, 29500, "127.0.0.1")


@pytest.mark.parametrize(
    "changes",
    [
        {"RANK": "2"},
        {"RANK": "-1"},
        {"RANK": "one"},
        {"WORLD_SIZE": "0"},
        {"LOCAL_RANK": "1"},
        {"LOCAL_WORLD_SIZE": "3"},
        {"MASTER_PORT": "0"},
        {"MASTER_PORT": "65536"},
    ],
)
def test_a_place_that_cannot_be_is_refused(changes: dict[str, str]):
    ((name, value),) = changes.items()
    with pytest.raises(ConfigError, match=rf"^no rank can be at .*{name}={value}.*: ranks count"):
        ranks.read_place(variables(1) | changes)


def test_variables_that_are_not_set_are_named():
    message = (
        "RANK is set, but WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_PORT, MASTER_ADDR not: "
        "start ranks by torchrun"
    )
    with pytest.raises(ConfigError, match=f"^{message}"):
        ranks.read_place({"RANK": "0"})


@pytest.mark.parametrize(("size", "expected"), [(1, None), (1, 1), (2, 2)])
def test_as_many_processes_as_a_stage_takes_are_welcome(size: int, expected: int | None):
    ranks.check_place(ALONE, "train@actor_critic", 2)
    ranks.check_place(ranks.read_place(variables(0, size)), "train@actor_critic", expected)


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = Project.create(tmp_path_factory.mktemp("two") / "p", "actor_critic", code=True)
    project.choose({"actor_critic": {"train": {"world_size": 2}}})
    return project


@pytest.mark.parametrize(
    ("stage", "size", "reason"),
    [
        (
            "train@actor_critic",
            3,
            "actor_critic.train.world_size = 2 in params.yaml: start as many processes as it says, "
            "or change it (unset RANK to train on this machine)",
        ),
        *(
            (
                stage,
                2,
                f"{stage} has no ranks: its processes would do the same work over one another. "
                "Start it once, without torchrun and without RANK",
            )
            for stage in ("train@allo", "collect@actor_critic")
        ),
    ],
)
def test_another_number_of_processes_is_refused(
    untrained: Project, stage: str, size: int, reason: str
):
    verb, _, model = stage.partition("@")
    done = untrained.run("-m", f"pipeline.{verb}", model, **variables(0, size))
    assert done == Ended(2, [f"{stage}: WORLD_SIZE is {size}, but {reason} [exit 2]"])
    assert not (untrained.root / ".state").exists()


def test_a_rank_beside_another_one_leaves_it_to_that_one_to_say_so(untrained: Project):
    assert untrained.run("train", **variables(1, 3, local_rank=1)) == Ended(2, [])


# How ranks meet.


def place_of(rank: int) -> Place:
    return ranks.read_place(variables(rank, port=free_port()))


def test_a_rank_waits_for_the_others_and_then_names_them(monkeypatch: Patch):
    monkeypatch.setattr(meetings, "MEETING_SECONDS", 0.3)
    with (
        pytest.raises(RankLost, match=r"^no word of rank 1 within 0 seconds$"),
        Meeting(place_of(0), Pretended()) as meeting,
    ):
        meeting.join({"code": "abc"})
    meetings.tell_refusal(place_of(1), "nobody listens")
    with (
        pytest.raises(RankLost, match=r"^rank 0 did not listen at MASTER_ADDR 127\.0\.0\.1, "),
        Meeting(place_of(1), Pretended()),
    ):
        pass


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_waits_hears_signals(rank: int):
    with (
        pytest.raises(Interrupted),
        Meeting(place_of(rank), Pretended(signal.SIGTERM)) as meeting,
    ):
        meeting.join({"code": "abc"})


def test_a_rank_that_is_refused_tells_those_that_wait_for_it():
    first = place_of(0)
    with Meeting(first, Pretended()) as meeting:
        meetings.tell_refusal(first._replace(rank=1), "WORLD_SIZE is 3")
        with pytest.raises(RankLost, match=r"because of rank 1 on .*: WORLD_SIZE is 3$"):
            meeting.join({"code": "abc"})


def test_the_first_thing_that_differs_is_named():
    first = {"rank": "rank 0 on a", "data": "1", "code": "0123456789abcdef"}
    meetings.compare([first, first | {"rank": "rank 1 on b"}])
    message = "^code is fedcba987654 for rank 1 on b, but 0123456789ab for rank 0 on a: ranks need"
    with pytest.raises(RanksDiffer, match=message):
        meetings.compare([first, first | {"rank": "rank 1 on b", "code": "fedcba9876543210"}])


def test_only_the_first_rank_of_a_machine_says_what_all_know(monkeypatch: Patch):
    monkeypatch.setattr(ranks, "QUIET_SECONDS", 0.0)
    error = TrainingDiverged("the loss is nan")
    with pytest.raises(TrainingDiverged), ranks.quieten(place_of(1)):
        raise error
    with pytest.raises(SystemExit) as silent, ranks.quieten(Place(1, 2, 1, 2, 1, "")):
        raise error
    assert silent.value.code == 7
    with pytest.raises(MemoryError), ranks.quieten(Place(1, 2, 1, 2, 1, "")):
        raise MemoryError


# A training of two ranks.


@pytest.fixture(scope="module")
def finished(untrained: Project) -> Project:
    """Trained by processes that the stage started itself."""
    project = untrained.copied(untrained.root.parent / "finished")
    assert [project.run(verb).code for verb in ("collect", "train")] == [0, 0]
    return project


@pytest.fixture
def project(finished: Project, tmp_path: Path) -> Project:
    """With data, and nothing trained yet."""
    project = finished.copied(tmp_path / "project")
    for out in ("models", ".state"):
        shutil.rmtree(project.root / out)
    return project


def torchrun(project: Project) -> Process:
    return project.start(*TORCHRUN, "pipeline.train", "actor_critic", **LOOPBACK)


def two_machines(project: Project, other: Project, local_rank: int = 0) -> tuple[Ended, Ended]:
    """Both ranks, started by hand."""
    port = free_port()
    second = other.start("train", **variables(1, port=port, local_rank=local_rank), **LOOPBACK)
    first = project.start("train", **variables(0, port=port), **LOOPBACK)
    return ended(first), ended(second)


def pid_of(launcher: Process, rank: int) -> int:
    children = psutil.Process(launcher.pid).children()
    (pid,) = (child.pid for child in children if child.environ().get("RANK") == str(rank))
    return pid


def the_next_run_ends_with_the_same_bytes(project: Project, finished: Project) -> None:
    assert not (project.root / "models").exists()
    last = project.run("train")
    assert last.code == 0, last.lines
    assert any("continues at step" in line for line in last.lines)
    assert project.hashes("data", "models") == finished.hashes("data", "models")


@pytest.mark.full
def test_torchrun_trains_to_the_bytes_of_the_stage(project: Project, finished: Project):
    """The stage then continues from the end, without any other rank, as `make repro` will."""
    done = ended(torchrun(project))
    assert done.code == 0, done.lines
    assert len([line for line in done.lines if "12/12" in line]) == 1
    assert project.hashes("models") == finished.hashes("models")
    assert project.statuses("train") == ["FINISHED"]
    shutil.rmtree(project.weights)  # as DVC does before it runs a stage
    again = project.run("train")
    assert again.code == 0, again.lines
    assert not [line for line in again.lines if "then" in line]
    assert project.hashes("models") == finished.hashes("models")


@pytest.mark.full
def test_machines_need_not_share_a_disk(project: Project, finished: Project, tmp_path: Path):
    """The second one continues from what only the first one has, and writes nothing."""
    other = project.copied(tmp_path / "other")
    assert project.run("train", QUATRAIN_CRASH_AT="60").code == -signal.SIGKILL
    first, second = two_machines(project, other)
    assert (first.code, second) == (0, Ended(0, []))
    assert first.lines[0].startswith("train@actor_critic: continues at step ")
    assert project.hashes("models") == finished.hashes("models")
    assert other.hashes("data", "models") == finished.hashes("data")
    assert not (other.root / ".state").exists()


@pytest.mark.full
def test_a_machine_with_other_code_or_without_data_is_refused(project: Project, tmp_path: Path):
    other = project.copied(tmp_path / "other")
    with (other.root / "src/quatrain/models/actor_critic/losses.py").open("a") as losses:
        losses.write("\n# changed\n")
    for done in two_machines(project, other):
        assert done.code == 2
        assert done.said.startswith("train@actor_critic: code is ")
    shutil.rmtree(other.data)
    first, second = two_machines(project, other)
    assert (first.code, second.code) == (5, 3)
    assert ": data/actor_critic/manifest.json: cannot be opened" in second.said
    assert "the training did not begin, because of rank 1 on " in first.said
    assert not (project.root / "models").exists()


@pytest.mark.full
def test_rank_0_says_that_a_rank_was_killed(project: Project, finished: Project):
    """Where nothing but the connection tells it so."""
    port = free_port()
    second = project.start("train", **variables(1, port=port), **LOOPBACK)
    first = project.start("train", **variables(0, port=port), **LOOPBACK)
    before = lines_until(first.stderr, " 3/12")
    second.kill()
    done = ended(first, before)
    assert ended(second) == Ended(-signal.SIGKILL, [])
    assert done.code == 5
    assert done.said.startswith(f"train@actor_critic: {LOST}")
    assert "; last good checkpoint: step " in done.said
    assert project.statuses("train") == ["FAILED"]
    the_next_run_ends_with_the_same_bytes(project, finished)


@pytest.mark.full
def test_the_other_ranks_end_with_rank_0(project: Project, finished: Project):
    launcher = torchrun(project)
    before = lines_until(launcher.stderr, " 3/12")
    os.kill(pid_of(launcher, 0), signal.SIGKILL)
    done = ended(launcher, before)
    assert done.code == 1
    # torchrun, which kills after half a minute what stays, had nothing else to kill.
    assert len([line for line in done.lines if "exitcode  : -9" in line]) == 1
    until(lambda: not orphans(project))
    the_next_run_ends_with_the_same_bytes(project, finished)


@pytest.mark.full
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_rank_0_saves_when_torchrun_is_ended(
    project: Project, finished: Project, number: signal.Signals
):
    launcher = torchrun(project)
    before = lines_until(launcher.stderr, " 3/12")
    launcher.send_signal(number)
    lines = ended(launcher, before).lines
    interrupted = "train@actor_critic: interrupted by SIGTERM; the next run continues [exit 143]"
    assert [line for line in lines if "[exit " in line] == [interrupted]
    until(lambda: not orphans(project))
    assert project.statuses("train") == ["KILLED"]
    the_next_run_ends_with_the_same_bytes(project, finished)


@pytest.mark.full
def test_a_divergence_is_told_once(project: Project):
    code = project.root / "src/quatrain/models/actor_critic/ppo/metrics.py"
    code.write_text(code.read_text().replace("not math.isfinite(value)", "updates >= 20"))
    first, second = two_machines(project, project, local_rank=1)
    assert (first.code, second) == (7, Ended(7, []))
    assert "; last good checkpoint: step " in first.said
