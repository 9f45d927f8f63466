"""A retraining proposes what passed and is new, reports what is broken, and leaves the checkout
alone.
"""

import datetime
import re
import shutil
from pathlib import Path

import pytest

from pipeline.commands import retrain
from pipeline.retraining import outcome
from pipeline.retraining.outcome import ISSUE
from pipeline.retraining.retrain import Request, choose_seed, retrain_and_record
from pipeline.retraining.worktree import Worktree
from pipeline.runtime import processes
from pipeline.runtime.errors import LockHeld
from pipeline.storage.params_file import read_params
from quatrain.registry import MODELS
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.retrained_checkout import Night
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import git

# A retraining has one thread; pytest may have loaded jax, which warns of any fork then.
pytestmark = pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
REQUEST = Request("default", None, None, push=False, figures_url="")


def test_a_clearly_better_model_is_promoted_on_a_branch_alone(night: Night, capsys: Capture):
    night.scores("iqn", return_mean=140.0)
    night.lock("new outs\n")
    assert retrain.main(["--pictures-url", "https://example.org/raw/"]) == 0
    assert night.state() == night.before
    branch, message = night.proposed(), night.ended().message
    reports = ["reports/iqn/scores.json", "reports/iqn/verdict.json"]
    assert night.changed() == ["baselines/iqn.json", "dvc.lock", *reports]
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

    assert message.title == "Retrain: iqn better"
    others = ", ".join(model for model in MODELS if model != "iqn")
    pictures = branch.replace("retrain/", "retrain-pictures/")
    picture = "reports/iqn/plots/curve.png"
    for part in (
        "Baselines of iqn move: a score is clearly better, none is worse. "
        f"Those of {others} stay: their scores hold them.\n",
        "| iqn | return_mean | 140.0000 | 105.0000 | +35.0000 | **better** |",
        "| allo | cosine_mean | 0.9950 | 0.9950 | 0.0000 | ok |",
        "<details><summary>dvc metrics diff</summary>\n\n| metric |\n|---|\n| of iqn |\n\n",
        f"![curve](https://example.org/raw/{pictures}/{picture})",
    ):
        assert part in message.body
    assert git(night.root, "show", f"{pictures}:{picture}") == "a picture of iqn"
    assert git(night.root, "rev-list", "--count", pictures) == "1\n"

    commit, branches = git(night.root, "rev-parse", branch), night.branches()
    night.set("date", "2026-02-04")
    assert retrain.main([]) == 0
    assert (night.proposed(), night.branches()) == (branch, branches)
    assert git(night.root, "rev-parse", branch) == commit
    assert len(night.calls("promote")) == 1
    said = f"retrain: this result is proposed already: branch {branch}\n"
    assert said in capsys.readouterr().out


def test_scores_that_merely_hold_their_baselines_never_move_them(night: Night):
    """Here they come from another seed, which is written into params.yaml beside its comments."""
    params = night.folder / "scored" / "params.yaml"
    params.write_text(params.read_text().replace("seed: 0", "seed: 7", 1))
    for model in MODELS:
        trained = Workspace(night.folder / "scored", model)
        trained.train("of seed 7")
        trained.score()
    night.scores("allo", cosine_mean=0.994)
    night.lock("new outs\n")
    assert retrain.main(["--seed", "7"]) == 0
    assert night.calls("promote") == []
    verdict_files = [f"reports/{model}/verdict.json" for model in MODELS]
    reports = sorted(["reports/allo/scores.json", *verdict_files])
    assert night.changed() == ["dvc.lock", "params.yaml", *reports]
    diff = git(night.root, "diff", "-U0", "main", night.proposed(), "--", "params.yaml")
    assert diff.splitlines()[-2:] == ["-seed: 0", "+seed: 7"]
    assert "# compute threads" in git(night.root, "show", f"{night.proposed()}:params.yaml")
    (title, body), pictures = night.ended().message, night.branches()[0]
    assert title == "Retrain: scores hold their baselines (seed 7)"
    for part in (
        "preset default, seed 7 (new)",
        "No baseline moves: the scores hold them, and none is clearly better.",
        "| allo | cosine_mean | 0.9940 | 0.9950 | -0.0010 | ok |",
        f"Report and pictures: branch `{pictures}`, `reports/report.md`.",
    ):
        assert part in body


@pytest.mark.full
def test_a_preset_proposes_its_baselines_alone(night: Night):
    night.preset("iqn", return_mean=140.0)
    assert retrain.main(["--preset", "smoke", "--jobs", "2"]) == 0
    assert night.calls() == [
        "repro --preset smoke --jobs 2",
        "promote --preset smoke --keep-champion iqn",
    ]
    assert night.changed() == ["baselines/iqn.json"]
    pictures = night.proposed().replace("retrain/", "retrain-pictures/")
    assert '"return_mean": 140.0' in git(night.root, "show", f"{pictures}:reports/iqn/scores.json")
    assert night.state() == night.before


def test_a_broken_gate_keeps_the_report_and_no_more(night: Night, remote: Path, failure: Failure):
    night.scores("allo", cosine_mean=0.5)
    night.lock("new outs\n")
    night.set("exit", "4")
    assert failure(retrain.main, "--push", code=4) == (
        "retrain: the gate is broken and nothing was promoted; .state/retrain/report/report.md "
        "shows the scores"
    )
    assert night.state() == night.before
    assert night.calls() == ["repro --preset default"]
    assert night.branches() == night.branches(remote) == []
    report = night.root / ".state" / "retrain" / "report" / "report.md"
    assert report.read_text() == "# the report\n"
    ended = night.ended()
    assert (ended.kind, ended.code, ended.message.title) == ("broken", 4, ISSUE)
    assert "* **allo**: cosine_mean 0.5 is 0.495 worse than baseline 0.995" in ended.message.body
    assert "| allo | cosine_mean | 0.5000 | 0.9950 | -0.4950 | **worse** |" in ended.message.body


def test_after_a_stopped_run_the_next_one_works(night: Night, failure: Failure, capsys: Capture):
    night.set("exit", "255")
    why = "pipeline.commands.repro stopped before the gate; the log says why"
    assert failure(retrain.main, code=255) == f"retrain: {why}"
    assert night.ended().kind == "stopped"
    assert f"    {why}\n" in night.ended().message.body
    night.set("exit", "0")
    assert retrain.main([]) == 0
    said = "retrain: passed, and nothing changed; there is nothing to propose\n"
    assert capsys.readouterr().out.endswith(said)
    assert night.branches() == []
    assert night.ended().kind == "unchanged"
    assert night.state() == night.before


SIGNED = ("commit.gpgSign", "push.gpgSign", "tag.gpgSign")


def test_a_checkout_whose_commits_are_signed_is_retrained_without_a_key(night: Night, remote: Path):
    for name in SIGNED:
        git(night.root, "config", name, "true")
    git(night.root, "config", "gpg.program", "false")
    night.lock("new outs\n")
    assert retrain.main(["--push"]) == 0
    assert night.branches(remote) == night.branches()
    assert len(night.branches()) == 2


@pytest.mark.parametrize("line", ["seed : 0  # drawn once", "'seed': 0", "? seed\n: 0"])
def test_a_seed_is_written_whatever_its_line_looks_like(tmp_path: Path, line: str):
    before, after = re.split("(?m)^seed:.*$", (ROOT / "params.yaml").read_text())
    path = tmp_path / "params.yaml"
    path.write_text(before + line + after)
    shutil.copytree(ROOT / "inputs", tmp_path / "inputs")
    origin = choose_seed(Worktree(tmp_path, tmp_path, None), "c" * 40, REQUEST._replace(seed=7))
    assert (origin.seed, origin.is_new_seed, read_params(tmp_path).seed) == (7, True, 7)
    assert path.read_text() == before + line.replace("0", "7") + after


def test_a_seed_that_is_not_the_one_that_was_written_is_no_new_seed(
    night: Night, monkeypatch: Patch, failure: Failure
):
    monkeypatch.setattr("pipeline.retraining.retrain.write_value", lambda *_: None)
    why = "retrain: params.yaml: seed is 0 after 7 was written; set it"
    assert failure(retrain.main, "--seed", "7", code=2) == why
    assert night.branches() == []


def today() -> int:
    return int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")


def test_a_seed_is_a_number_of_the_default_preset(capsys: Capture):
    """A new one is the date, so that an interrupted retraining is continued."""
    before, seed, after = today(), retrain.parse_seed("new"), today()
    assert seed in (before, after)  # which differ at midnight
    assert retrain.parse_seed("4294967295") == 2**32 - 1
    why = "is no seed; pass `new` or a whole number below 2**32"
    for arguments, said in (
        (["--seed=-1"], f"'-1' {why}"),
        (["--seed=4294967296"], f"'4294967296' {why}"),
        (["--preset=smoke", "--seed=3"], "--seed goes with the default preset: it is written"),
    ):
        with pytest.raises(SystemExit, match="2"):
            retrain.main(arguments)
        assert said in capsys.readouterr().err


def test_refused_beginnings(night: Night, tmp_path: Path, monkeypatch: Patch, failure: Failure):
    why = "retrain: unknown preset 'smok'; did you mean 'smoke'?"
    assert failure(retrain.main, "--preset=smok", code=2).startswith(why)
    why = "retrain: --push needs a git remote; `git remote add origin URL` names one"
    assert failure(retrain.main, "--push", code=2) == why
    (night.root / "src" / "a.py").write_text("edited\n")
    (night.root / "new.txt").write_text("new\n")
    assert failure(retrain.main, code=2) == (
        "retrain: a retraining starts from a commit, but src/a.py, new.txt differ from it; "
        "commit or stash them first"
    )
    assert not (night.root / ".state" / "retrain" / "work").exists()
    assert night.calls() == []

    shutil.copytree(night.root, tmp_path / "copy", ignore=shutil.ignore_patterns(".git"))
    monkeypatch.chdir(tmp_path / "copy")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    why = "retrain: a retraining starts from a commit; run it in a git checkout that has one (`git"
    said = failure(retrain.main, code=2)
    assert said.startswith(why)
    assert "` failed: fatal: not a git repository" in said


def test_a_second_retraining_at_the_same_time_is_refused(night: Night):
    why = "another retraining is at work in this checkout; wait for it or end it"
    with (
        processes.CommandSequence(night.root / outcome.FOLDER / "lock", "retraining", 0.0),
        pytest.raises(LockHeld, match=why),
    ):
        retrain_and_record(night.root, REQUEST, patience_seconds=0.0)
