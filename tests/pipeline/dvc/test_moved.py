"""What a run moved in git is said in one line, with the reason, and only where it moved."""

import json
from pathlib import Path

import pytest

from pipeline.dvc.moved import moved
from quatrain.registry import MODELS
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import git


@pytest.fixture
def elsewhere(checkout: Path) -> Path:
    """A clone on another machine, where allo was trained again."""
    (checkout / "dvc.lock").write_text("a\n")
    git(checkout, "add", "dvc.lock")
    git(checkout, "commit", "-q", "-m", "lock")
    Workspace(checkout).train("b" * 64, cpu="6 / 1 / Xeon")
    (checkout / "dvc.lock").write_text("b\n")
    return checkout


def test_an_untouched_clone_of_the_same_bytes_says_nothing(checkout: Path):
    assert moved(checkout, list(MODELS)) is None


def test_equal_scores_of_other_bytes_are_normal(elsewhere: Path):
    Workspace(elsewhere).score()
    assert moved(elsewhere, ["allo"]) == (
        "the scores are those in git; dvc.lock and report.md name the machine and the bytes of its "
        "run: normal"
    )


def test_scores_of_another_machine_are_told_by_what_the_gate_allows(elsewhere: Path):
    Workspace(elsewhere).score(cosine_mean=0.994, cosine_min=0.979)
    where = "here Xeon (family 6, model 1), 2 threads, in git AMD (family 25, model 1), 2 threads"
    assert moved(elsewhere, ["allo"]) == (
        "2 of 3 scores differ from those in git, at most by 20% of what the gate allows "
        f"(allo cosine_mean 0.995 -> 0.994); normal on another machine: {where}"
    )
    Workspace(elsewhere).score(cosine_mean=0.985)
    line = moved(elsewhere, ["allo"])
    assert line is not None
    assert line.endswith(f"0.985); more than another machine explains: {where}")


def test_the_same_machine_explains_nothing(elsewhere: Path):
    Workspace(elsewhere).train("c" * 64)
    Workspace(elsewhere).score(cosine_mean=0.994)
    line = moved(elsewhere, ["allo"])
    assert line is not None
    assert line.endswith("of the same type: code, params or versions have changed since")


def test_what_a_person_changed_needs_no_reason(elsewhere: Path):
    with (elsewhere / "params.yaml").open("a") as file:
        file.write("# changed\n")
    Workspace(elsewhere).score(cosine_mean=0.994)
    assert json.loads((elsewhere / "reports/allo/scores.json").read_text())["cosine_mean"] == 0.994
    assert moved(elsewhere, ["allo"]) is None
