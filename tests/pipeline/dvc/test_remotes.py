"""Remotes over ssh and S3 with the locked packages: what was pushed need not be computed again."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.pipeline import loopback
from tests.pipeline.loopback import BUCKET, KEYS
from tests.pipeline.small_checkout import call, clone, git

pytestmark = pytest.mark.full
PIPELINE = """
stages:
  numbers:
    cmd: mkdir numbers; seq 2 > numbers/2.txt; cat count > total.txt
    deps: [count]
    outs: [numbers, total.txt]
"""
Settings = dict[str, str]
Server = Callable[[Path], AbstractContextManager[Settings]]


@contextmanager
def ssh(folder: Path) -> Iterator[Settings]:
    with loopback.sshd(folder) as server:
        url = f"ssh://127.0.0.1:{server.port}{server.store}"
        yield {"url": url, "user": server.name, "keyfile": str(server.key)}


@contextmanager
def s3(folder: Path) -> Iterator[Settings]:
    with loopback.s3(folder / "log") as url:
        loopback.put(f"{url}/{BUCKET}", b"")
        names = ("access_key_id", "secret_access_key")
        keys = {name: KEYS[f"AWS_{name.upper()}"] for name in names}
        region = KEYS["AWS_DEFAULT_REGION"]
        yield keys | {"url": f"s3://{BUCKET}/cache", "endpointurl": url, "region": region}


@pytest.mark.parametrize("server", [ssh, s3])
def test_what_was_pushed_is_pulled_and_not_run_again(server: Server, tmp_path: Path):
    source, copy, folder = (tmp_path / name for name in ("source", "copy", "server"))
    for path in (source, folder):
        path.mkdir()
    with server(folder) as settings:
        git(source, "init", "-q")
        call(source, "dvc", "init", "-q")
        lines = ["[core]", "remote = store", "['remote \"store\"']", "verify = true"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        (source / ".dvc" / "config.local").write_text("\n".join(lines))
        (source / "dvc.yaml").write_text(PIPELINE)
        (source / "count").write_text("5\n")
        call(source, "dvc", "repro")
        git(source, "add", "-A")
        git(source, "commit", "-q", "-m", "numbers")
        call(source, "dvc", "push", "--run-cache")

        clone(copy, source)
        assert not (copy / "numbers").exists()
        shutil.copy(source / ".dvc" / "config.local", copy / ".dvc")
        call(copy, "dvc", "pull", "--run-cache")
        (copy / "dvc.lock").unlink()
        assert "is cached - skipping run, checking out outputs" in call(copy, "dvc", "repro")
        assert (copy / "numbers" / "2.txt").read_text() == "1\n2\n"
        assert (copy / "total.txt").read_text() == "5\n"
