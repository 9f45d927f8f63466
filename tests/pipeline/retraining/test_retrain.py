"""A retraining proposes what passed and is new, reports what is broken, and leaves the checkout
alone. git is real, and what runs in the worktree is pretended.
"""

import datetime
import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from dvc.repo import Repo
from dvc.scm import NoSCM

from pipeline.cli import main
from pipeline.retraining import retrain as work
from pipeline.retraining.outcome import FOLDER, ISSUE
from pipeline.retraining.worktree import Worktree
from pipeline.runtime import command, processes
from pipeline.runtime.errors import Interrupted, LockHeld
from pipeline.storage import run_key
from tests.pipeline.faulty_server import faulty
from tests.pipeline.fixture_types import Capture, Failure, Patch
from tests.pipeline.scored_workspace import Workspace
from tests.pipeline.small_checkout import contents, git

WORK = FOLDER / "work"
REPRO = "pipeline repro --preset default"
WORSE = "cosine_mean 0.5 is 0.495 worse than baseline 0.995 (higher is better, tolerance 0.005)"
IGNORED = (
    ".presets/",
    ".state/",
    "/reports/compare/",
    "/models/",
    "/.dvc/config.local",
    "/.dvc/cache",
    "__pycache__/",
)


class Night:
    """Holds what one retraining will find, and what it left."""

    def __init__(self, root: Path) -> None:
        self.root, self.trained = root, root.with_name("models")
        shutil.copytree(root / "models", self.trained)
        self.codes: dict[str, int] = {"dvc fetch": 1, "dvc config": 1}
        self.scores: dict[str, dict[str, float]] = {}
        self.files: dict[str, str] = {}
        self.calls: list[str] = []
        # What comparisons say, and their verdicts, by model.
        self.says: dict[str, tuple[str, str]] = {}
        self.compared: list[str] = []
        self.pushed = ""
        self.continued: list[str] = []

    def call(self, copy: Worktree, *arguments: str) -> int:
        """What a command does in the worktree."""
        line = " ".join(arguments)
        if not line.startswith(("dvc config", "dvc fetch", "dvc checkout", "pipeline compare")):
            self.calls.append(line)
        if line.startswith("pipeline compare"):
            self.compare(copy.path, arguments[2], line)
        elif line.startswith("pipeline repro"):
            self.run(copy.path)
        elif line.startswith("dvc push"):
            self.pushed = git(copy.path, "rev-parse", "HEAD")
        elif line.startswith("pipeline promote"):
            for model in arguments[4:]:
                baseline = copy.path / "baselines" / f"{model}.json"
                baseline.write_text(f"{baseline.read_text()}\n")
        return next((code for start, code in self.codes.items() if line.startswith(start)), 0)

    def compare(self, path: Path, model: str, line: str) -> None:
        self.compared.append(line)
        if model in self.says:
            folder = path / "reports" / "compare" / f"retrain-{model}"
            folder.mkdir(parents=True)
            page, verdict = self.says[model]
            (folder / "compare.md").write_text(page)
            (folder / "compare.json").write_text(json.dumps({"verdict": verdict}))

    def run(self, path: Path) -> None:
        self.continued = [file.name for file in path.glob(".state/checkpoint")]
        (path / ".state" / "checkpoint").touch()
        shutil.copytree(self.trained, path / "models", dirs_exist_ok=True)
        for name, text in self.files.items():
            (path / name).write_text(text)
        for model, changed in self.scores.items():
            Workspace(path, model).score(**changed)

    def state(self) -> tuple[object, ...]:
        """All that a retraining must not change in the checkout."""
        files = {name: data for name, data in contents(self.root).items() if ".state/" not in name}
        return files, git(self.root, "rev-parse", "HEAD"), git(self.root, "status", "--porcelain")

    def outcome(self) -> Any:
        return json.loads((self.root / FOLDER / "outcome.json").read_text())

    def body(self) -> str:
        return (self.root / FOLDER / "body.md").read_text()

    def branches(self, folder: Path | None = None) -> list[str]:
        """Those that retrainings made, here or in another repository."""
        names = ("for-each-ref", "--format=%(refname:short)", "refs/heads/retrain")
        return git(folder or self.root, *names).splitlines()

    def changed(self) -> list[str]:
        """The files in which the only proposal differs from main."""
        (branch,) = self.branches()
        return git(self.root, "diff", "--name-only", "main", branch).splitlines()


@pytest.fixture
def night(checkout: Path, monkeypatch: Patch) -> Night:
    """A checkout to retrain, with a pipeline that takes no time."""
    (checkout / ".gitignore").write_text("\n".join([*IGNORED, ""]))
    for name in ("report.md", "report.html"):
        (checkout / "reports" / name).write_text("the report")
    git(checkout, "checkout", "-q", "-B", "main")
    git(checkout, "add", ".")
    git(checkout, "commit", "-q", "-m", "retrainable")
    night = Night(checkout)
    monkeypatch.setattr(Worktree, "call", lambda copy, *words, **_: night.call(copy, *words))
    return night


@pytest.fixture
def remote(night: Night) -> Path:
    """A bare repository that it pushes to."""
    git(night.root.parent, "init", "-q", "--bare", "remote")
    git(night.root, "remote", "add", "origin", "../remote")
    return night.root.with_name("remote")


def test_a_clearly_better_model_is_promoted_on_a_branch_alone_and_once(
    night: Night, capsys: Capture
):
    before = night.state()
    night.scores = {"iqn": {"return_mean": 140.0}}
    night.files = {"dvc.lock": "stages: new\n"}
    assert main(["retrain"]) == 0
    assert night.state() == before
    (branch,) = night.branches()
    reports = ["reports/iqn/scores.json"]
    assert night.changed() == ["baselines/iqn.json", "dvc.lock", *reports]
    assert git(night.root, "log", "-1", "--format=%an", branch) == "quatrain retraining\n"
    assert git(night.root, "rev-parse", f"{branch}^") == git(night.root, "rev-parse", "main")
    promote = "pipeline promote --preset default iqn"
    assert night.calls == [REPRO, promote, "pipeline.dvc.brief repro --single-item report"]
    assert capsys.readouterr().out.splitlines() == [
        "retrain: no DVC remote gave everything; what the local cache lacks is computed",
        f"retrain: proposed: branch {branch}; --push would send it",
    ]
    assert not (night.root / WORK).exists()
    assert git(night.root, "worktree", "list").count("\n") == 1
    title = "Retrain: iqn better"
    proposed = {"kind": "proposed", "exit": 0, "title": title, "branch": branch, "reason": None}
    assert night.outcome() == proposed
    assert "Baselines of iqn move: a score is clearly better, none is worse.\n" in night.body()
    assert "|iqn|return_mean|140.0000|105.0000|" in night.body().replace(" ", "")
    assert (night.root / FOLDER / "report.html").read_text() == "the report"

    commit = git(night.root, "rev-parse", branch)
    assert main(["retrain"]) == 0
    assert night.branches() == [branch]
    assert night.outcome() == proposed
    assert git(night.root, "rev-parse", branch) == commit
    assert night.calls.count(promote) == 1
    said = f"retrain: this result is proposed already: branch {branch}\n"
    assert capsys.readouterr().out.endswith(said)


def test_an_edit_of_the_checkout_meanwhile_changes_no_judgement(night: Night, monkeypatch: Patch):
    def run(path: Path) -> None:
        Night.run(night, path)
        monkeypatch.setattr(run_key, "sources_of", lambda *_: {"src/a.py": "edited"})

    night.scores = {"iqn": {"return_mean": 140.0}}
    night.files = {"dvc.lock": "stages: new\n"}
    monkeypatch.setattr(night, "run", run)
    assert main(["retrain"]) == 0
    assert night.outcome()["title"] == "Retrain: iqn better"
    assert "stale" not in night.body()


def test_equal_scores_are_not_proposed_whatever_bytes_differ(night: Night):
    night.files = {"dvc.lock": "stages: new\n"}
    assert main(["retrain", "--seed", "7"]) == 0
    assert night.branches() == []
    assert night.outcome()["kind"] == "unchanged"


def test_what_comparisons_find_better_is_proposed_and_moves_no_baseline(night: Night, remote: Path):
    params = night.root / "params.yaml"
    params.write_text(params.read_text().replace("seed: 0", "seed: 0  # drawn once", 1))
    git(night.root, "commit", "-q", "-a", "-m", "a comment")
    night.says = {"allo": ("# allo: better\n\n## What differs\n", "better")}
    night.codes |= {"pipeline compare iqn": 5}
    night.files = {"dvc.lock": "stages: new\n"}
    options = ("--seed", "7", "--jobs", "2", "--push", "--compare", "8")
    assert main(["retrain", *options]) == 0
    assert night.calls == [f"{REPRO} --jobs 2"]  # no outs are pushed without a DVC remote
    options = "--against champion --name retrain-allo --seeds 8 --preset default"
    assert night.compared[0] == f"pipeline compare allo {options}"
    assert night.branches(remote) == night.branches()
    assert night.changed() == ["dvc.lock", "params.yaml"]
    diff = git(night.root, "diff", "-U0", "main", *night.branches(), "--", "params.yaml")
    assert diff.splitlines()[-2:] == ["-seed: 0  # drawn once", "+seed: 7  # drawn once"]
    assert night.outcome()["title"] == "Retrain: allo better (seed 7)"
    assert "preset default, seed 7 (new)" in night.body()
    assert "No baseline moves: the scores hold them." in night.body()
    assert "Since the baseline of **allo**:\n\n* seed: 0 -&gt; 7\n" in night.body()
    (_, said) = night.body().split("## Champion against new, over seeds\n\n")
    assert said.split("\n\n")[:-1] == [
        "### allo: better",
        "#### What differs",
        "iqn: the comparison ended with exit code 5; the log says why.",
        "actor_critic: code and params are the champion's; nothing to compare.",
        "active_dynamics: code and params are the champion's; nothing to compare.",
    ]
    kept = night.root / FOLDER / "compare" / "retrain-allo" / "compare.md"
    assert kept.read_text() == night.says["allo"][0]


def test_what_a_comparison_finds_worse_moves_no_baseline(night: Night):
    night.scores = {"iqn": {"return_mean": 140.0}}
    night.says = {"iqn": ("# iqn: worse\n", "worse")}
    night.files = {"dvc.lock": "stages: new\n"}
    assert main(["retrain"]) == 0
    assert night.outcome()["kind"] == "unchanged"
    assert main(["retrain", "--compare", "0"]) == 0
    assert len(night.compared) == 4
    assert night.outcome()["title"] == "Retrain: iqn better"
    assert "Champion against new" not in night.body()
    assert not (night.root / FOLDER / "compare").exists()


def test_a_broken_gate_keeps_the_report_and_no_more(night: Night, remote: Path, failure: Failure):
    before = night.state()
    night.scores = {"allo": {"cosine_mean": 0.5}}
    night.codes[REPRO] = 4
    assert failure(main, "retrain", "--push", code=4) == (
        "retrain: the gate is broken and nothing was promoted; .state/retrain/report.md "
        "shows the scores"
    )
    assert night.state() == before
    assert night.branches() == night.branches(remote) == []
    assert (night.root / FOLDER / "report.md").read_text() == "the report"
    outcome = {"kind": "broken", "exit": 4, "title": ISSUE, "branch": None}
    assert night.outcome() == outcome | {"reason": f"allo: {WORSE}"}
    assert f"* **allo**: {WORSE}" in night.body()


def test_a_failure_is_a_line_for_the_webhook_whose_url_is_never_printed(
    night: Night, capsys: Capture, monkeypatch: Patch
):
    night.scores = {"allo": {"cosine_mean": 0.5}}
    with faulty() as server:
        url = f"{server.uri}/services/T1/B2"
        monkeypatch.setenv("QUATRAIN_WEBHOOK_URL", url)
        for code, fault in ((4, ""), (4, "404"), (255, "page"), (0, "page")):
            night.codes[REPRO], server.fault = code, fault
            night.scores = night.scores if code else {}
            assert main(["retrain"]) == code
    monkeypatch.setenv("QUATRAIN_WEBHOOK_URL", f"{url} b")
    night.codes[REPRO] = 255
    assert main(["retrain"]) == 255
    worse = f"{ISSUE}: allo: {WORSE}"
    stopped = f"{ISSUE}: `make repro` stopped before the gate; the log says why"
    posts = {
        text: b"POST/services/T1/B2" + json.dumps({"text": text}).encode()
        for text in (worse, stopped)
    }
    assert server.requests == {posts[worse]: 2, posts[stopped]: 1}
    output = "".join(capsys.readouterr())
    warnings = re.findall(r"the webhook of QUATRAIN_WEBHOOK_URL was not told (.*)", output)
    assert warnings == ["(HTTP 404)", "(InvalidURL)"]
    assert "T1/B2" not in output


def test_what_stops_is_told_and_the_next_one_continues_from_its_checkpoints(
    night: Night, failure: Failure, capsys: Capture
):
    """Whatever a killed git, promotion or person left of the worktree, which is made anew."""
    before = night.state()
    night.codes[REPRO] = 255
    why = "`make repro` stopped before the gate; the log says why"
    assert failure(main, "retrain", code=255) == f"retrain: {why}"
    assert night.outcome()["kind"] == "stopped"
    assert f"    {why}\n" in night.body()
    assert night.continued == []

    work = night.root / WORK
    (night.root / ".git" / "worktrees" / "work" / "index.lock").touch()
    (work / "baselines" / "stray.json").write_text("{}")
    assert main(["retrain"]) == 255
    assert not (work / "baselines" / "stray.json").exists()
    git(night.root, "worktree", "lock", str(work))
    (work / ".git").unlink()
    (work / "src" / "a.py").write_text("never in the checkout")
    del night.codes[REPRO]
    assert main(["retrain"]) == 0
    assert night.continued == ["checkpoint"]
    said = "retrain: passed, and no score is better; there is nothing to propose\n"
    assert capsys.readouterr().out.endswith(said)
    assert night.outcome()["kind"] == "unchanged"
    assert night.branches() == []
    assert night.state() == before
    assert main(["retrain"]) == 0
    assert night.continued == []


def test_settings_of_dvc_and_outboxes_are_the_checkouts_and_stay(night: Night):
    outbox = night.root / ".state" / "outbox" / "train@allo-1" / "kept"
    outbox.parent.mkdir(parents=True)
    outbox.touch()
    settings = "[core]\nremote = here\n['remote \"here\"']\nurl = /of_this_checkout\n"
    (night.root / ".dvc" / "config.local").write_text(settings)
    night.codes["pipeline repro"] = 255
    assert main(["retrain", "--preset", "smoke"]) == 255
    assert "of_this_checkout" in (night.root / WORK / ".dvc" / "config.local").read_text()
    for place in (night.root / WORK, night.root / WORK / ".presets" / "smoke"):
        for name in ("outbox", "groups", "trials"):
            assert (place / ".state" / name).resolve() == night.root / ".state" / name
    with Repo(str(night.root / WORK)) as repo:
        assert not isinstance(repo.scm, NoSCM)
    del night.codes["pipeline repro"]
    assert main(["retrain"]) == 0
    assert outbox.exists()


def test_outs_are_pushed_before_the_branch_without_hooks_or_a_key(
    night: Night, remote: Path, failure: Failure
):
    for name in ("pre-commit", "post-checkout", "pre-push"):
        hook = night.root / ".git" / "hooks" / name
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    for name in ("commit.gpgSign", "push.gpgSign", "tag.gpgSign"):
        git(night.root, "config", name, "true")
    night.files = {"dvc.lock": "stages: new\n"}
    night.says = {"iqn": ("# iqn: better\n", "better")}
    night.codes = {"dvc push": 1}
    why = "retrain: the DVC remote did not take the outs, so no branch was pushed; the lines above"
    assert failure(main, "retrain", "--push", code=5) == f"{why} say why"
    assert night.branches(remote) == []

    night.codes = {}
    night.calls.clear()
    assert main(["retrain", "--push"]) == 0
    assert night.calls == [REPRO, "dvc push --quiet --run-cache"]
    assert night.branches(remote) == night.branches()
    assert git(remote, "rev-parse", *night.branches(remote)) == night.pushed
    assert git(remote, "for-each-ref", "refs/heads/main") == ""

    git(night.root, "branch", "-q", "-D", *night.branches())  # pushed by another checkout
    assert main(["retrain", "--push"]) == 0
    assert night.calls[2:] == [REPRO]


def test_refused_beginnings(night: Night, failure: Failure):
    why = "retrain: --compare 3: pass 4 or more, or 0"
    assert failure(main, "retrain", "--compare", "3", code=2) == why
    why = "retrain: `git ls-remote --quiet origin HEAD` failed: fatal: 'origin' does not appear"
    assert failure(main, "retrain", "--push", code=5).startswith(why)
    (night.root / "src" / "a.py").write_text("edited\n")
    (night.root / "new.txt").write_text("new\n")
    assert failure(main, "retrain", code=2) == (
        "retrain: a retraining starts from a commit, but src/a.py, new.txt differ from it; "
        "commit them, or use `git stash -u`"
    )
    (night.root / ".git").rename(night.root / "not-git")
    why = "retrain: `git rev-parse --verify HEAD^{commit}` failed: fatal: not a git repository"
    assert failure(main, "retrain", code=5).startswith(why)
    assert night.calls == []


def test_a_new_seed_is_the_date_so_that_an_interrupted_retraining_continues():
    def today() -> int:
        return int(f"{datetime.datetime.now(datetime.UTC):%Y%m%d}")

    before, seed, after = today(), command.seed("new"), today()
    assert seed in (before, after)  # which differ at midnight
    assert command.seed("4294967295") == 2**32 - 1


def test_a_signal_leaves_no_outcome(night: Night, failure: Failure, monkeypatch: Patch):
    assert main(["retrain"]) == 0

    def interrupted(_: Path) -> None:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(night, "run", interrupted)
    why = "retrain: interrupted by SIGTERM; the next run continues"
    assert failure(main, "retrain", code=143) == why
    assert (night.root / FOLDER / "lock").read_text() == str(os.getpid())
    assert not (night.root / FOLDER / "outcome.json").exists()
    assert not (night.root / FOLDER / "body.md").exists()


# pytest may have loaded jax, which warns of any fork then.
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_second_retraining_waits_for_what_the_first_one_runs(tmp_path: Path, monkeypatch: Patch):
    """What runs in the worktree holds the lock, too."""
    monkeypatch.setattr(work, "PATIENCE_SECONDS", 0.0)
    lock = processes.lock_file(tmp_path / FOLDER / "lock", 0.0)
    assert lock is not None
    os.write(lock, b"123")
    with pytest.raises(LockHeld, match="another retraining is at work in process 123, or in what"):
        work.retrain(tmp_path, work.Retraining("default"))
    copy = Worktree(tmp_path, tmp_path, lock)
    (tmp_path / "locks.py").write_text(f"import fcntl; fcntl.flock({lock}, fcntl.LOCK_EX)")
    assert copy.call("locks") == 0
    (tmp_path / "dies.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    with pytest.raises(Interrupted, match="SIGTERM"):
        copy.call("dies")
