"""The verdict is a tag of the run and of the version, and the name of a run says what is wrong."""

import json
from pathlib import Path

import pytest

from pipeline.judging.gate import judge
from pipeline.storage.params_file import read_params
from pipeline.tracking.origin import DESCRIPTION_TAG
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import SCORE_TAG, VERDICT_TAG
from pipeline.tracking.run import path_of
from pipeline.tracking.verdicts import NAME_TAG, record_verdicts, tags_of_all
from quatrain.judgement import Judgement
from tests.pipeline.recorded_runs import header
from tests.pipeline.scored_workspace import Workspace

KEY = "a" * 64


@pytest.fixture
def evaluation(space: Workspace) -> Outbox:
    """What training and evaluation recorded; returns the outbox of the second."""
    for stage in ("train@allo", "evaluate@allo"):
        outbox = Outbox(path_of(space.root, stage, KEY))
        outbox.begin(header(KEY, run_name=f"{stage} of today"))
        outbox.end("FINISHED")
    return outbox


def judgement_of(space: Workspace) -> Judgement:
    return judge(space.root, "allo", read_params(space.root))


def tags(outbox: Outbox) -> dict[str, str]:
    return {record.name: record.body for record in outbox.records("tag")}


def test_a_broken_run_is_named_so_until_it_passes(space: Workspace, evaluation: Outbox):
    space.score(cosine_mean=0.5)
    (outbox,) = record_verdicts(space.root, [judgement_of(space)])
    assert outbox.path == evaluation.path
    short = {VERDICT_TAG: "worse", SCORE_TAG: "cosine_mean 0.5000"}
    recorded = tags(evaluation)
    assert short.items() <= recorded.items()
    assert recorded[NAME_TAG] == "worse: train@allo of today"
    assert "**Worse**: 1 of 3 scores." in recorded[DESCRIPTION_TAG]
    assert "* nothing that is recorded" in recorded[DESCRIPTION_TAG]
    version = evaluation.record("version")
    assert version is not None
    assert (version.name, json.loads(version.body)) == ("quatrain-allo", short)
    assert record_verdicts(space.root, [judgement_of(space)]) == []
    space.score()
    assert len(record_verdicts(space.root, [judgement_of(space)])) == 1
    assert tags(evaluation)[NAME_TAG] == "train@allo of today"


def test_a_run_of_elsewhere_is_left_alone(space: Workspace, tmp_path: Path):
    assert record_verdicts(space.root, [judgement_of(space)]) == []
    assert not (tmp_path / ".state" / "outbox").exists()


def test_the_run_of_a_pipeline_has_the_worst_verdict(space: Workspace):
    good = judgement_of(space)
    space.score(cosine_mean=0.5)
    recorded = tags_of_all("default", [good, judgement_of(space)._replace(model="iqn")])
    assert recorded[VERDICT_TAG] == "worse"
    assert recorded[SCORE_TAG] == "allo cosine_mean 0.9950, iqn cosine_mean 0.5000"
    assert recorded[NAME_TAG] == "worse: default"
