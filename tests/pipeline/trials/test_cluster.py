"""Trials on a Ray cluster of two nodes end as on one machine, whatever of it is killed."""

import re
import signal
import socket
from collections.abc import Iterator
from contextlib import nullcontext
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pipeline.runtime.errors import CommandFailed
from pipeline.runtime.processes import folder_lock
from pipeline.trials import cluster, node
from pipeline.trials.trial import Outcome, folder_of, write_outcome
from quatrain.errors import DataError
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import until
from tests.pipeline.trials import stand_ins
from tests.pipeline.trials.loopback import DRIVER, LoopbackCluster, Session, make_checkout

TRIALS = Path(".state/trials")


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoopbackCluster]:
    nodes = LoopbackCluster(make_checkout(tmp_path_factory.mktemp("nodes") / "code"))
    try:
        nodes.add()
        nodes.add()
        yield nodes
    finally:
        nodes.down()


def trials(root: Path, keys: str = "a", **values: Any) -> dict[str, Any]:
    common = {"steps": 40, "data": "d1", "collections": str(root / "collections"), "go": "/"}
    return dict.fromkeys(keys, common | values)


def rows(session: Session, key: str = "a") -> list[int]:
    return [int(step) for step in re.findall(rf"^row {key} (\d+)$", session.text, re.MULTILINE)]


def trial_folder(root: Path, key: str = "a") -> Path:
    return root / TRIALS / key


def results(root: Path) -> dict[str, str]:
    """Returns the digests of what trials computed."""
    paths = (root / TRIALS).glob("?/[mr][oe]*/**/*")
    files = [path for path in paths if path.is_file()]
    assert files
    return {str(path.relative_to(root)): sha256(path.read_bytes()).hexdigest() for path in files}


def log(root: Path, key: str = "a") -> str:
    return (trial_folder(root, key) / "stages.log").read_text()


@pytest.mark.full
def test_trials_end_as_on_this_machine_though_a_node_and_the_driver_are_killed(
    nodes: LoopbackCluster, tmp_path: Path
) -> None:
    """No row is missed, and nothing is left at work."""
    here, there, go = tmp_path / "here", tmp_path / "there", tmp_path / "go"
    local = Session(nodes.code, DRIVER, [str(here), trials(here, "ab"), {"cores": 1}])
    both = trials(there, "ab", go=str(go))
    driver = nodes.drive(there, both)
    until(lambda: len(rows(driver, "a")) == len(rows(driver, "b")) == 20)
    until(lambda: all((there / TRIALS / "archives" / f"{key}.tar").exists() for key in "ab"))
    nodes.nodes.pop().kill()
    nodes.add()
    until(lambda: len(nodes.stages()) == 2)
    driver.kill()
    until(lambda: not nodes.stages())
    assert "raylet" not in driver.text

    go.touch()
    again = nodes.drive(there, both)
    assert (local.wait(), again.wait()) == (0, 0), local.text + again.text
    assert results(there) == results(here)
    assert len(results(there)) == 2 * 6
    for key in "ab":
        assert rows(again, key) == [*range(1, 41)]
        assert re.match(r"train begins at step 1\ntrain begins at step (?!1\n)", log(there, key))
        outcome = (trial_folder(there, key) / "outcome.json").read_text()
        assert all(verb in outcome for verb in ("finished", "collect", "train", "evaluate"))
    assert (there / "collections").read_text().count("\n") == 2, "once by each driver"
    assert not list((there / TRIALS).glob("?/.state/train*"))


@pytest.mark.full
def test_a_signal_lets_trials_save_and_leaves_nothing(
    nodes: LoopbackCluster, tmp_path: Path
) -> None:
    both = trials(tmp_path, "ab", go=str(tmp_path / "go"))
    both |= trials(tmp_path, "a", hopeless=5, go=str(tmp_path / "go"))
    driver = nodes.drive(tmp_path, both)
    driver.says("[1/2] a: stopped")
    until(lambda: len(rows(driver, "b")) == 20)
    driver.process.send_signal(signal.SIGTERM)
    assert driver.wait() == 143, driver.text
    assert not nodes.stages()
    folder = trial_folder(tmp_path, "b")
    assert list(folder.glob(".state/train@allo/key/slot-?/manifest.json"))


@pytest.mark.full
def test_a_stage_that_is_lost_too_often_fails_and_is_tried_again_by_the_next_command(
    nodes: LoopbackCluster, tmp_path: Path
) -> None:
    verbs = {"a": "collect", "b": "train"}
    lost = {
        key: trials(tmp_path, key, steps=1, lost=verb, data=key)[key] for key, verb in verbs.items()
    }
    driver = nodes.drive(tmp_path, lost, retries=1)
    assert driver.wait() == 0, driver.text
    for key, verb in verbs.items():
        assert f"/2] {key}: failed: {verb}@allo ended with 137: {verb} is lost" in driver.text
        assert not (trial_folder(tmp_path, key) / "outcome.json").exists()
    assert log(tmp_path, "b").count("train is lost") == 2
    again = nodes.drive(tmp_path, trials(tmp_path, "ab", steps=1))
    assert again.wait() == 0
    assert again.text.count(": finished") == 2


@pytest.mark.full
def test_a_trial_waits_for_a_node_with_room_and_one_with_other_code_is_refused(
    nodes: LoopbackCluster, tmp_path: Path
) -> None:
    driver = nodes.drive(tmp_path, trials(tmp_path, steps=1), cpus=2)
    driver.says("allo a: waits for a node with 2 CPUs and 0 GPUs")
    other = nodes.code / "pipeline" / "other.py"
    other.touch()
    nodes.add(cpus=2)
    assert driver.wait() == 3, driver.text
    other.unlink()
    assert "has other code than the driver (" in driver.text.splitlines()[-1]


def test_a_node_gives_stages_their_files_cpus_and_gpus_if_it_has_the_code(tmp_path: Path) -> None:
    nowhere: Any = None
    files = {"inputs/allo/map.txt": b"map"}
    job = node.Job(stand_ins.trial(), files, nowhere, "", 2, 0.5, node.code_digest())
    environment = node.prepare_node(job, tmp_path)
    assert (environment["NPROC"], environment["XLA_PYTHON_CLIENT_MEM_FRACTION"]) == ("2", "0.450")
    assert (tmp_path / "inputs/allo/map.txt").read_bytes() == b"map"
    with pytest.raises(node.CodeDiffers, match=r"^node .* has other code than the driver \("):
        node.prepare_node(job._replace(code="other"), tmp_path)


def test_a_node_removes_what_a_killed_attempt_left(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / f"quatrain-trial-{socket.gethostname()}-4194399-dead").mkdir()
    other = tmp_path / "quatrain-trial-another-node-4194399-alive"
    other.mkdir()
    with node.scratch() as first, node.scratch() as second:
        assert {str(path) for path in tmp_path.iterdir()} == {first, second, str(other)}
    assert list(tmp_path.iterdir()) == [other]


def test_what_a_node_makes_while_its_code_is_edited_is_removed(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    nowhere: Any = None
    saved: list[list[str]] = []
    environment = stand_ins.environment(tmp_path)
    monkeypatch.setattr(node, "stage_environment", lambda *_: environment)
    monkeypatch.setattr(node, "code_digest", Mock(side_effect=["same", "same", "other"]))
    monkeypatch.setattr(node, "restore", Mock())
    monkeypatch.setattr(
        node, "save", lambda *place: saved.append([*map(str, place[-1].glob("models/*"))])
    )
    monkeypatch.setattr("signal.signal", Mock())
    job = node.Job(stand_ins.trial(), {}, nowhere, "loss", 1, 0, "same")
    with pytest.raises(node.CodeDiffers):
        list(node.run_trial(job, {}))
    assert saved[-1] == []


def test_a_trial_of_edited_code_is_not_begun(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(cluster, "check_current", Mock(side_effect=DataError("code changed")))
    place = cluster.Cluster(tmp_path, "127.0.0.1:1")
    with pytest.raises(DataError, match="code changed"):
        place.begin(stand_ins.trial())


def test_a_trial_has_the_outcome_that_another_attempt_or_command_stored(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    trial, diverged = stand_ins.trial(), Outcome("diverged", reason="loss is not finite")
    folder = folder_of(tmp_path, trial)
    place = cluster.Cluster(tmp_path, "127.0.0.1:1")
    monkeypatch.setattr(place, "_storage", None, raising=False)
    monkeypatch.setattr(place, "_ray", Mock(wait=lambda items, **_: (items, [])), raising=False)
    monkeypatch.setattr(place, "_next", lambda _: ("", Outcome("stopped")))
    monkeypatch.setattr(cluster, "restore", lambda *_: write_outcome(folder, diverged))
    for is_at_work, outcome in ((True, Outcome("stopped")), (False, diverged)):
        place._running[trial.key] = cluster.Running(trial, "items")
        with folder_lock(folder) if is_at_work else nullcontext():
            assert [*place.events()] == [(trial, outcome)]


# What ends a command in one line before anything is begun.


@pytest.fixture
def token(tmp_path: Path, monkeypatch: Patch) -> Path:
    monkeypatch.setattr(cluster, "find_spec", lambda _: True)  # The quick tests run without Ray.
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    (tmp_path / "token").touch(mode=0o600)
    return tmp_path / "token"


def refusal(root: Path, address: str = "127.0.0.1:1") -> str:
    with pytest.raises(CommandFailed) as caught, cluster.Cluster(root, address):
        pass
    assert caught.value.exit_code == 5
    assert not (root / TRIALS).exists()
    return str(caught.value)


def test_a_token_is_needed_that_others_cannot_read(token: Path, tmp_path: Path) -> None:
    token.chmod(0o640)
    line = refusal(tmp_path)
    assert line.startswith(f"{token} is not there, or others can read it; --address needs the ")
    token.unlink()
    assert refusal(tmp_path) == line


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "auto"])
def test_no_cluster_answers(address: str, tmp_path: Path) -> None:
    line = refusal(tmp_path, address)
    assert line.startswith(f"no Ray cluster answers at {address} (")
    assert "); name HOST:PORT of its head, as NAME:6379, on a node of the cluster" in line


def test_what_it_needs_is_named(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(cluster, "find_spec", lambda _: None)
    assert refusal(tmp_path) == "--address needs Ray: make cluster"
    monkeypatch.setattr(cluster, "find_spec", lambda _: True)
    monkeypatch.delattr("tarfile.data_filter")
    assert refusal(tmp_path).startswith("--address needs Python 3.11.4")
