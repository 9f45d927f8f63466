"""A pipeline's outs and its run cache on a remote over ssh and over S3: what was pushed need not be
computed again.
"""

import shutil
from collections.abc import Callable, Iterator
from hashlib import md5
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pipeline import loopback
from tests.pipeline.loopback import BUCKET, KEYS
from tests.pipeline.small_checkout import call, clone, contents, git

pytestmark = pytest.mark.full
PIPELINE = """
stages:
  numbers:
    cmd: >-
      echo numbers >> $RUNS; mkdir numbers;
      for i in $(seq $(cut -c8- params.yaml)); do seq $i > numbers/$i.txt; done
    params: [count]
    outs: [numbers]
  total:
    cmd: echo total >> $RUNS; cat numbers/* | wc -l > total.txt
    deps: [numbers]
    outs: [total.txt]
"""


class Remote(NamedTuple):
    """What all who clone know of a remote, how this machine logs in there, and how to write one of
    its files.
    """

    settings: dict[str, str]
    private: dict[str, str]
    overwrite: Callable[[str, bytes], object]


def section(settings: dict[str, str]) -> str:
    """Of DVC's config."""
    lines = ["['remote \"store\"']", *(f"{name} = {value}" for name, value in settings.items())]
    return "\n    ".join(lines) + "\n"


def dvc(root: Path, *arguments: str, code: int = 0) -> str:
    """The stages that it runs write their names into a file beside the root."""
    return call(root, "dvc", *arguments, code=code, RUNS=str(root.with_name("runs")))


def outs(root: Path) -> dict[str, bytes]:
    names = ("numbers/", "total.txt")
    return {name: data for name, data in contents(root).items() if name.startswith(names)}


def count(root: Path, number: int) -> None:
    (root / "params.yaml").write_text(f"count: {number}\n")


@pytest.fixture(scope="module")
def created(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Computed with two counts; beside it is what each left in dvc.lock."""
    root = tmp_path_factory.mktemp("created") / "project"
    root.mkdir()
    git(root, "init", "-q")
    dvc(root, "init", "-q")
    (root / "dvc.yaml").write_text(PIPELINE)
    for number in (2, 3):
        count(root, number)
        dvc(root, "repro")
        shutil.copy(root / "dvc.lock", root.with_name(f"{number}.lock"))
    assert root.with_name("runs").read_text().split() == ["numbers", "total"] * 2
    return root


def with_remote(created: Path, root: Path, remote: Remote) -> Path:
    """With what `dvc remote add -d` and `dvc remote modify` write, and with `--local` for this
    machine alone; a commit for each count.
    """
    shutil.copytree(created, root)
    with (root / ".dvc" / "config").open("a") as file:
        file.write("[core]\n    remote = store\n" + section(remote.settings))
    (root / ".dvc" / "config.local").write_text(section(remote.private))
    for number in (2, 3):
        count(root, number)
        shutil.copy(created.with_name(f"{number}.lock"), root / "dvc.lock")
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", f"{number} files")
    return root


def cloned(source: Path, name: str) -> Path:
    """As somebody else has it: without outs and cache."""
    root = clone(source.with_name(name), source)
    shutil.copy(source / ".dvc" / "config.local", root / ".dvc")
    assert outs(root) == {}
    return root


@pytest.fixture(scope="module")
def ssh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with loopback.sshd(tmp_path_factory.mktemp("sshd")) as server:
        url = f"ssh://127.0.0.1:{server.port}{server.store}"
        settings = {"url": url, "user": server.name, "verify": "true"}
        private = {"keyfile": str(server.key)}
        yield Remote(settings, private, lambda name, data: (server.store / name).write_bytes(data))


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with loopback.s3(tmp_path_factory.mktemp("moto") / "log") as url:
        loopback.put(f"{url}/{BUCKET}", b"")
        settings = {"url": f"s3://{BUCKET}/cache", "endpointurl": url, "verify": "true"}
        settings["region"] = KEYS["AWS_DEFAULT_REGION"]
        names = ("access_key_id", "secret_access_key")
        private = {name: KEYS[f"AWS_{name.upper()}"] for name in names}
        cache = f"{url}/{BUCKET}/cache"
        yield Remote(settings, private, lambda name, data: loopback.put(f"{cache}/{name}", data))


@pytest.mark.parametrize("kind", ["ssh", "s3"])
def test_what_was_pushed_is_pulled_and_checked(
    created: Path, kind: str, request: pytest.FixtureRequest, tmp_path: Path
):
    remote: Remote = request.getfixturevalue(kind)
    source = with_remote(created, tmp_path / "source", remote)
    pushed = outs(source)
    dvc(source, "push", "--run-cache", "--all-commits")
    copy = cloned(source, "clone")
    dvc(copy, "pull", "--run-cache")
    assert outs(copy) == pushed
    assert len(pushed) == 4
    assert "Data and pipelines are up to date" in dvc(copy, "repro")

    count(copy, 2)
    printed = dvc(copy, "repro", "--pull")
    assert printed.count("is cached - skipping run, checking out outputs") == 2
    assert outs(copy).keys() == pushed.keys() - {"numbers/3.txt"}
    assert outs(copy)["total.txt"] == b"3\n"
    assert not (tmp_path / "runs").exists()

    digest = md5(pushed["total.txt"]).hexdigest()
    remote.overwrite(f"files/md5/{digest[:2]}/{digest[2:]}", b"7\n")
    late = cloned(source, "late")
    why = "failed to pull data from the cloud - Checkout failed for following targets:\ntotal.txt\n"
    assert why in dvc(late, "pull", code=1)
    assert outs(late) == {name: pushed[name] for name in pushed if name != "total.txt"}


def test_a_remote_that_is_away_is_told_in_a_line(created: Path, tmp_path: Path):
    away = Remote({"url": "ssh://127.0.0.1:1/nowhere", "user": "nobody"}, {}, print)
    source = with_remote(created, tmp_path / "source", away)
    assert "Connect call failed ('127.0.0.1', 1)" in dvc(source, "push", code=255)
