"""A retraining proposes what passed and is new, reports what is broken, and leaves the checkout
alone.
"""

import datetime
from pathlib import Path

import pytest

from pipeline.commands import retrain
from pipeline.retraining import outcome
from pipeline.retraining.outcome import ISSUE
from pipeline.runtime import processes
from pipeline.runtime.errors import LockHeld
from quatrain.registry import MODELS
from tests.pipeline.retrained_checkout import Night
from tests.pipeline.small_checkout import git

Capture = pytest.CaptureFixture[str]
# A retraining has one thread; pytest may have loaded jax, which warns of any fork then.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")


# What passed and is new.


def test_a_clearly_better_model_is_promoted_on_a_branch_and_the_checkout_is_as_it_was(
    night: Night, capsys: Capture
):
    night.scores("iqn", return_mean=140.0)
    night.lock("new outs\n")
    assert retrain.main([]) == 0
    assert night.state() == night.before
    branch = night.proposed()
    assert git(night.root, "diff", "--name-only", "main", branch).splitlines() == [
        "baselines/iqn.json",
        "dvc.lock",
        "reports/iqn/scores.json",
        "reports/iqn/verdict.json",
    ]
    assert git(night.root, "rev-parse", f"{branch}^") == git(night.root, "rev-parse", "main")
    assert night.calls() == [
        "repro --preset default",
        "promote --preset default --keep-champion iqn",
    ]
    assert capsys.readouterr().out.splitlines() == [
        "retrain: no default DVC remote is set; what the local cache lacks is computed",
        f"retrain: proposed: branch {branch}; --push would send it",
    ]
    assert not (night.root / ".state" / "retrain" / "work").exists()
    assert git(night.root, "worktree", "list").count("\n") == 1


def test_the_proposal_says_what_moves_and_shows_scores_metrics_and_pictures(night: Night):
    night.scores("iqn", return_mean=140.0)
    assert retrain.main(["--pictures-url", "https://example.org/raw/"]) == 0
    message, digest = night.ended().message, night.proposed().removeprefix("retrain/")
    assert message.title == "Retrain: iqn better"
    others = ", ".join(model for model in MODELS if model != "iqn")
    assert (
        "Baselines of iqn move: a score is clearly better, none is worse. "
        f"Those of {others} stay: their scores hold them.\n" in message.body
    )
    assert "| iqn | return_mean | 140.0000 | 105.0000 | +35.0000 | **better** |" in message.body
    assert "| allo | cosine_mean | 0.9950 | 0.9950 | 0.0000 | ok |" in message.body
    assert (
        "<details><summary>dvc metrics diff</summary>\n\n| metric |\n|---|\n| of iqn "
        "|\n\n</details>" in message.body
    )
    assert (
        f"![curve](https://example.org/raw/retrain-pictures/{digest}/reports/iqn/plots/curve.png)"
        in message.body
    )
    assert (
        git(night.root, "show", f"retrain-pictures/{digest}:reports/iqn/plots/curve.png")
        == "a picture of iqn"
    )
    assert git(night.root, "rev-list", "--count", f"retrain-pictures/{digest}") == "1\n"


def test_scores_that_merely_hold_their_baselines_never_move_them(night: Night):
    night.scores("allo", cosine_mean=0.994)
    night.lock("new outs\n")
    assert retrain.main([]) == 0
    assert night.calls("promote") == []
    changed = git(night.root, "diff", "--name-only", "main", night.proposed())
    assert "dvc.lock" in changed
    assert "baselines" not in changed
    assert (
        "No baseline moves: the scores hold them, and none is clearly better."
        in night.ended().message.body
    )


def test_without_a_place_for_pictures_the_branch_is_named(night: Night):
    night.lock("new outs\n")
    assert retrain.main([]) == 0
    digest = night.proposed().removeprefix("retrain/")
    assert (
        f"Report and pictures: branch `retrain-pictures/{digest}`, `reports/report.md`."
        in night.ended().message.body
    )


def test_where_nothing_changed_nothing_is_proposed(night: Night, capsys: Capture):
    assert retrain.main([]) == 0
    assert capsys.readouterr().out.endswith(
        "retrain: passed, and nothing changed; there is nothing to propose\n"
    )
    assert night.branches() == []
    assert night.ended().kind == "unchanged"
    assert night.state() == night.before


def test_the_same_result_is_proposed_once_whatever_the_day(night: Night, capsys: Capture):
    night.scores("iqn", return_mean=140.0)
    assert retrain.main([]) == 0
    first, branches = night.proposed(), night.branches()
    commit = git(night.root, "rev-parse", first)
    night.set("date", "2026-02-04")
    assert retrain.main([]) == 0
    assert night.proposed() == first
    assert night.branches() == branches
    assert git(night.root, "rev-parse", first) == commit
    assert len(night.calls("promote")) == 1
    assert f"retrain: this result is proposed already: branch {first}\n" in capsys.readouterr().out


def test_a_preset_proposes_its_baselines_alone(night: Night):
    night.preset("iqn", return_mean=140.0)
    assert retrain.main(["--preset", "smoke", "--jobs", "2"]) == 0
    assert night.calls() == [
        "repro --preset smoke --jobs 2",
        "promote --preset smoke --keep-champion iqn",
    ]
    assert git(night.root, "diff", "--name-only", "main", night.proposed()).splitlines() == [
        "baselines/iqn.json"
    ]
    pictures = night.proposed().replace("retrain/", "retrain-pictures/")
    assert '"return_mean": 140.0' in git(night.root, "show", f"{pictures}:reports/iqn/scores.json")
    assert night.state() == night.before


# What is broken.


def test_a_broken_gate_ends_with_4_keeps_the_report_and_promotes_and_pushes_nothing(
    night: Night, remote: Path, capsys: Capture
):
    night.scores("allo", cosine_mean=0.5)
    night.lock("new outs\n")
    night.set("exit", "4")
    assert retrain.main(["--push"]) == 4
    assert capsys.readouterr().err == (
        "retrain: the gate is broken and nothing was promoted; .state/retrain/report/report.md "
        "shows the scores "
        "[exit 4]\n"
    )
    assert night.state() == night.before
    assert night.calls() == ["repro --preset default"]
    assert night.branches() == night.branches(remote) == []
    assert (
        night.root / ".state" / "retrain" / "report" / "report.md"
    ).read_text() == "# the report\n"
    ended = night.ended()
    assert (ended.kind, ended.code, ended.message.title) == ("broken", 4, ISSUE)
    assert "* **allo**: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in ended.message.body
    assert "| allo | cosine_mean | 0.5000 | 0.9950 | -0.4950 | **worse** |" in ended.message.body


def test_a_run_that_stops_before_the_gate_ends_with_its_code_and_the_next_one_works(
    night: Night, capsys: Capture
):
    night.set("exit", "255")
    assert retrain.main([]) == 255
    why = "pipeline.commands.repro stopped before the gate; the log says why"
    assert capsys.readouterr().err == f"retrain: {why} [exit 255]\n"
    assert night.state() == night.before
    assert night.ended().kind == "stopped"
    assert f"    {why}\n" in night.ended().message.body
    night.set("exit", "0")
    assert retrain.main([]) == 0
    assert night.ended().kind == "unchanged"


# Seeds.


def test_a_seed_is_written_where_params_have_theirs_and_comments_stay(night: Night):
    assert retrain.main(["--seed", "7"]) == 0
    diff = git(night.root, "diff", "-U0", "main", night.proposed(), "--", "params.yaml")
    assert diff.splitlines()[-2:] == ["-seed: 0", "+seed: 7"]
    assert "# compute threads" in git(night.root, "show", f"{night.proposed()}:params.yaml")
    assert night.ended().message.title == "Retrain: scores hold their baselines (seed 7)"
    assert "preset default, seed 7 (new)" in night.ended().message.body


def test_a_new_seed_is_the_date_so_that_an_interrupted_retraining_is_continued():
    assert retrain.parse_seed("new") == int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))


@pytest.mark.parametrize("text", ["-1", "x", "4294967296", "1.5"])
def test_what_is_no_seed_is_refused(text: str, capsys: Capture):
    with pytest.raises(SystemExit, match="2"):
        retrain.main([f"--seed={text}"])
    assert (
        f"{text!r} is no seed; pass `new` or a whole number below 2**32" in capsys.readouterr().err
    )


def test_a_seed_for_another_preset_is_refused(capsys: Capture):
    with pytest.raises(SystemExit, match="2"):
        retrain.main(["--preset", "smoke", "--seed", "3"])
    assert (
        "--seed goes with the default preset: it is written into params.yaml"
        in capsys.readouterr().err
    )


# Where a retraining begins.


def test_changes_that_are_not_committed_are_refused(night: Night, capsys: Capture):
    (night.root / "src" / "a.py").write_text("edited\n")
    (night.root / "new.txt").write_text("new\n")
    assert retrain.main([]) == 2
    assert capsys.readouterr().err == (
        "retrain: a retraining starts from a commit, but src/a.py, new.txt differ from it; "
        "commit or stash them first [exit 2]\n"
    )
    assert night.calls() == []


def test_outside_a_git_checkout_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert retrain.main([]) == 2
    why = (
        "retrain: a retraining starts from a commit; run it in a git checkout that has one "
        "[exit 2]\n"
    )
    assert capsys.readouterr().err == why


def test_an_unknown_preset_is_refused_before_anything_is_made(night: Night, capsys: Capture):
    assert retrain.main(["--preset", "smok"]) == 2
    assert "retrain: unknown preset 'smok'; did you mean 'smoke'?" in capsys.readouterr().err
    assert not (night.root / ".state" / "retrain" / "work").exists()


def test_a_second_retraining_at_the_same_time_is_refused(night: Night):
    request = retrain.Request("default", None, None, push=False, figures_url="")
    why = "another retraining is at work in this checkout; wait for it or end it"
    with (
        processes.CommandSequence(night.root / outcome.FOLDER / "lock", "retraining", 0.0),
        pytest.raises(LockHeld, match=why),
    ):
        retrain.retrain_and_record(night.root, request, patience_seconds=0.0)
    assert night.calls() == []
