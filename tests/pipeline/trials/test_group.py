"""Tests that trials are runs below the run of their group, each row once, whoever was killed."""

from pathlib import Path
from typing import Any, cast

import pytest

from pipeline.cli import main
from pipeline.tracking import run
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import SEED, Parent
from pipeline.trials.group import Group
from pipeline.trials.trial import Trial, folder_of
from tests.pipeline.fixture_types import Patch
from tests.pipeline.recorded_runs import arrived, client_of, expected, header, runs_of
from tests.pipeline.small_project import NOBODY

KEY = "0123456789abcdef"
FIRST, SECOND = (Trial("allo", {}, cast(Any, None), {}, key * 16, "") for key in "ab")


@pytest.fixture
def root(tmp_path: Path, uri: str, monkeypatch: Patch) -> Path:
    """A checkout whose store is `uri`; deliveries begin at once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    monkeypatch.setattr(run, "FIRST_SECONDS", 0)
    return tmp_path


def begun(root: Path, key: str = KEY, name: str = "sweep-lr") -> Group:
    return Group(root, name, key, {"search.kind": "tpe"}, {"quatrain.model": "allo"})


def tell(root: Path, trial: Trial, status: str = "FINISHED") -> None:
    """Does what a driver does with one trial."""
    sweep = begun(root)
    sweep.ended(trial, "0001")
    sweep.finish(status, [])


def stage(
    root: Path, trial: Trial, verb: str, time: int, *, end: str = "FINISHED", key: str = "k1"
) -> Outbox:
    """Records a stage of a trial, as its process does; `end` is "" if that was killed."""
    folder = folder_of(root, trial) / ".state" / "outbox"
    outbox = Outbox(folder / f"{verb}@allo-{key}.sqlite")
    params, tags = {"train.steps": "9"}, {"quatrain.seed": "7"} if verb == "train" else {}
    outbox.begin(header(key, params=params, tags=tags, parent=Parent("p1", "default")), time)
    outbox.metrics([(f"{verb}/loss", step, step / 3) for step in range(9)], time + 1)
    outbox.metrics([(f"train/loss{SEED}0", 1, 0.5)], time + 1, hidden={f"train/loss{SEED}0"})
    outbox.put("artifact", f"plots/{verb}.png", data=verb.encode(), time=time + 2)
    if end:
        outbox.end(end, time + 9)
    return outbox


def children(uri: str) -> list[Any]:
    """The runs below the one of the group, by start."""
    (parent,) = runs_of(client_of(uri), KEY)
    query = f"tags.`mlflow.parentRunId` = '{parent.info.run_id}'"
    order = ["attributes.start_time"]
    return client_of(uri).search_runs([parent.info.experiment_id], query, order_by=order)


def rows(uri: str, child: Any) -> Any:
    return arrived(client_of(uri), child.data.tags["quatrain.run_key"])


def test_a_trial_is_one_run_of_its_stages_below_the_run_of_the_group(root: Path, uri: str):
    stages = [stage(root, FIRST, "train", 1000), stage(root, FIRST, "evaluate", 1020)]
    (root / "page.html").write_text("page")
    sweep = begun(root)
    sweep.metrics([("best", 1, 0.5)])
    sweep.conclude({"quatrain.verdict": "better"})
    sweep.ended(FIRST, "0001")
    sweep.ended(SECOND, "0002")  # which has recorded nothing
    sweep.finish("FINISHED", [root / "page.html"])
    (child,) = children(uri)
    assert rows(uri, child) == expected(*stages)
    info, tags = child.info, child.data.tags
    assert (info.run_name, info.start_time, info.end_time) == ("sweep-lr-0001", 1000, 1029)
    assert (tags["quatrain.trial"], tags["quatrain.seed"]) == ("0001", "7")
    assert child.data.params == {"train.steps": "9"}
    (parent,) = runs_of(client_of(uri), KEY)
    (page,) = client_of(uri).list_artifacts(parent.info.run_id, "report")
    assert (parent.info.status, page.path) == ("FINISHED", "report/page.html")
    assert (parent.data.tags["quatrain.group"], parent.data.metrics) == ("true", {"best": 0.5})
    assert parent.data.tags["quatrain.verdict"] == "better"
    assert parent.data.params == {"search.kind": "tpe"}


def test_a_run_that_another_type_of_machine_began_is_not_mixed_in(root: Path, uri: str):
    stages = [stage(root, FIRST, "train", time, key=key) for time, key in ((9, "k1"), (99, "k2"))]
    tell(root, FIRST)
    assert rows(uri, children(uri)[0]) == expected(stages[1])


def test_another_trial_with_the_same_label_has_a_run_of_its_own(root: Path, uri: str):
    for trial, time in ((FIRST, 1000), (SECOND, 2000)):
        outbox = stage(root, trial, "train", time)
        tell(root, trial)
        assert rows(uri, children(uri)[-1]) == expected(outbox)
    assert [each.info.run_name for each in children(uri)] == ["sweep-lr-0001"] * 2


def test_a_killed_driver_that_starts_again_sends_each_row_once(
    root: Path, uri: str, monkeypatch: Patch
):
    outbox = stage(root, FIRST, "train", 1000, end="")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", NOBODY)
    sweep = begun(root)
    sweep.ended(FIRST, "0001")
    sweep._lock.close()  # as a kill does
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    tell(root, FIRST, "KILLED")
    assert [each.info.status for each in children(uri)] == ["KILLED"]
    outbox.metrics([("train/loss", step, step / 3) for step in range(12)], 2000)
    outbox.end("FINISHED", 2001)
    for _ in range(2):
        tell(root, FIRST)
        (child,) = children(uri)
        assert (rows(uri, child), child.info.status) == (expected(outbox), "FINISHED")
    whole = expected(outbox)
    outbox.path.unlink()  # its folder was lost: it is trained anew
    stage(root, FIRST, "train", 5000)
    tell(root, FIRST)
    assert rows(uri, children(uri)[0]) == whole


def test_a_trial_of_a_commit_has_that_one_as_its_own(root: Path, uri: str):
    stage(root, FIRST, "train", 1000)
    tell(root, FIRST._replace(checkout=Path("commits", "c0ffee")))
    tags = children(uri)[0].data.tags
    assert tags["git.commit"] == tags["mlflow.source.git.commit"] == "c0ffee"
    assert tags["git.dirty"] == "false"


@pytest.mark.parametrize("is_sync", [True, False], ids=["make sync", "the next group of its name"])
def test_a_group_whose_driver_was_killed_is_ended(
    root: Path, uri: str, is_sync: bool, monkeypatch: Patch
):
    monkeypatch.setattr(run, "FIRST_SECONDS", 1e6)  # these two deliver nothing
    left, other = begun(root), begun(root, "other", "compare-lr")
    left._lock.close()  # as a kill does
    if is_sync:
        assert main(["sync"]) == 0
        assert runs_of(client_of(uri), "other")[0].info.status == "RUNNING"
    else:
        begun(root, "another-key").finish("FINISHED", [])
    assert runs_of(client_of(uri), KEY)[0].info.status == "KILLED"
    other.finish("FINISHED", [])
