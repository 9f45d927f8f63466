"""A pipeline's outs and its run cache on a remote over ssh and over S3: what was pushed need not be
computed again.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline import loopback
from tests.pipeline.loopback import BUCKET, KEYS
from tests.pipeline.small_checkout import contents, git

PIPELINE = """
stages:
  numbers:
    cmd: python stage.py numbers
    params: [count]
    deps: [stage.py]
    outs: [numbers]
  total:
    cmd: python stage.py total
    deps: [stage.py, numbers]
    outs: [total.txt]
"""
STAGE = """
import os, sys
from pathlib import Path

with open(os.environ["RUNS"], "a") as runs:
    runs.write(sys.argv[1] + "\\n")
if sys.argv[1] == "numbers":
    Path("numbers").mkdir()
    for i in range(int(Path("params.yaml").read_text().split()[-1])):
        Path(f"numbers/{i}.txt").write_text(f"{i}\\n" * 1000)
else:
    texts = sorted(path.read_text() for path in Path("numbers").iterdir())
    Path("total.txt").write_text(str(sum(int(line) for text in texts for line in text.split())))
"""
OUTS = ("numbers/", "total.txt")


class Remote(NamedTuple):
    """What all who clone know of a remote, how this machine logs in there, and how to write one of
    its files.
    """

    settings: dict[str, str]
    private: dict[str, str]
    overwrite: Callable[[str, bytes], object]


class Copy:
    """A clone of the tiny pipeline; `runs` are the stages that ran in it, `locks` what they left
    for each count.
    """

    def __init__(self, root: Path, locks: dict[int, str] | None = None) -> None:
        self.root, self.locks = root, locks or {}
        self._runs = root.parent / f"{root.name}.runs"

    @property
    def runs(self) -> list[str]:
        return self._runs.read_text().split() if self._runs.exists() else []

    @property
    def outs(self) -> dict[str, bytes]:
        return {name: data for name, data in contents(self.root).items() if name.startswith(OUTS)}

    def dvc(self, *arguments: str, code: int = 0) -> str:
        """What it says; a failing command is told by another exit code."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("AWS_", "SSH_"))
        }
        environment |= {"PATH": path, "RUNS": str(self._runs), "DVC_NO_ANALYTICS": "1"}
        command = [sys.executable, "-m", "dvc", *arguments]
        done = subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def count(self, number: int) -> None:
        (self.root / "params.yaml").write_text(f"count: {number}\n")

    def know(self, remote: Remote) -> None:
        """What `dvc remote add -d` and `dvc remote modify` write, and with `--local` for this
        machine alone.
        """
        with (self.root / ".dvc" / "config").open("a") as file:
            file.write("[core]\n    remote = store\n" + section(remote.settings))
        self.log_in(remote)

    def log_in(self, remote: Remote) -> None:
        (self.root / ".dvc" / "config.local").write_text(section(remote.private))

    def committed(self) -> None:
        """One commit for each count."""
        for number, lock in self.locks.items():
            self.count(number)
            (self.root / "dvc.lock").write_text(lock)
            git(self.root, "add", "-A")
            git(self.root, "commit", "-q", "-m", f"{number} files")

    def cloned(self, root: Path, remote: Remote) -> "Copy":
        """As somebody else has it: without outs and cache."""
        git(self.root, "clone", "-q", str(self.root), str(root))
        copy = Copy(root)
        copy.log_in(remote)
        assert copy.outs == {}
        return copy


def section(settings: dict[str, str]) -> str:
    """Of DVC's config."""
    return (
        "\n    ".join(
            ["['remote \"store\"']", *(f"{name} = {value}" for name, value in settings.items())]
        )
        + "\n"
    )


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """Computed with two counts."""
    copy = Copy(tmp_path_factory.mktemp("made") / "project")
    copy.root.mkdir()
    git(copy.root, "init", "-q")
    copy.dvc("init", "-q")
    (copy.root / "dvc.yaml").write_text(PIPELINE)
    (copy.root / "stage.py").write_text(STAGE)
    for number in (2, 3):
        copy.count(number)
        copy.dvc("repro")
        copy.locks[number] = (copy.root / "dvc.lock").read_text()
    assert copy.runs == ["numbers", "total"] * 2
    return copy


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with loopback.sshd(tmp_path_factory.mktemp("sshd")) as server:
        settings = {
            "url": f"ssh://127.0.0.1:{server.port}{server.store}",
            "user": server.name,
            "verify": "true",
        }
        private = {"keyfile": str(server.key)}
        yield Remote(settings, private, lambda name, data: (server.store / name).write_bytes(data))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with loopback.s3(tmp_path_factory.mktemp("moto") / "log") as url:
        loopback.put(f"{url}/{BUCKET}", b"")
        settings = {
            "url": f"s3://{BUCKET}/cache",
            "endpointurl": url,
            "region": "us-east-1",
            "verify": "true",
        }
        private = {
            "access_key_id": KEYS["AWS_ACCESS_KEY_ID"],
            "secret_access_key": KEYS["AWS_SECRET_ACCESS_KEY"],
        }
        yield Remote(
            settings, private, lambda name, data: loopback.put(f"{url}/{BUCKET}/cache/{name}", data)
        )


@pytest.fixture(params=["ssh", "s3"])
def remote(request: pytest.FixtureRequest) -> Remote:
    return request.getfixturevalue(request.param)


@pytest.fixture
def source(created: Copy, remote: Remote, tmp_path: Path) -> Copy:
    """A computed pipeline that names its remote and has pushed all to it."""
    shutil.copytree(created.root, tmp_path / "source")
    copy = Copy(tmp_path / "source", created.locks)
    copy.know(remote)
    copy.committed()
    copy.dvc("push", "--run-cache", "--all-commits")
    return copy


def test_what_was_pushed_is_pulled_elsewhere_and_nothing_runs(
    source: Copy, remote: Remote, tmp_path: Path
) -> None:
    clone = source.cloned(tmp_path / "clone", remote)
    clone.dvc("pull", "--run-cache")

    assert clone.outs == source.outs
    assert len(clone.outs) == 4
    assert "Data and pipelines are up to date" in clone.dvc("repro")

    clone.count(2)
    printed = clone.dvc("repro", "--pull")
    assert printed.count("is cached - skipping run, checking out outputs") == 2
    assert clone.outs.keys() == source.outs.keys() - {"numbers/2.txt"}
    assert clone.outs["total.txt"] == b"1000"
    assert clone.runs == []


def test_a_file_that_changed_on_the_remote_is_refused(
    source: Copy, remote: Remote, tmp_path: Path
) -> None:
    digest = md5(source.outs["total.txt"]).hexdigest()
    remote.overwrite(f"files/md5/{digest[:2]}/{digest[2:]}", b"3001")
    clone = source.cloned(tmp_path / "clone", remote)
    printed = clone.dvc("pull", code=1)

    assert (
        "failed to pull data from the cloud - Checkout failed for following targets:\ntotal.txt\n"
        in printed
    )
    assert clone.outs == {name: data for name, data in source.outs.items() if name != "total.txt"}


def test_a_remote_that_is_away_is_told_in_a_line(created: Copy, tmp_path: Path) -> None:
    shutil.copytree(created.root, tmp_path / "source")
    copy = Copy(tmp_path / "source")
    copy.know(Remote({"url": "ssh://127.0.0.1:1/nowhere", "user": "nobody"}, {}, print))
    printed = copy.dvc("push", code=255)
    assert "Connect call failed ('127.0.0.1', 1)" in printed
    assert "Traceback" not in printed
