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
    cmd: mkdir numbers; seq 2 > numbers/2.txt; seq 3 > numbers/3.txt; cat count > total.txt
    deps: [count]
    outs: [numbers, total.txt]
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


def outs(root: Path) -> dict[str, bytes]:
    names = ("numbers/", "total.txt")
    return {name: data for name, data in contents(root).items() if name.startswith(names)}


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
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
):
    remote: Remote = request.getfixturevalue(kind)
    source = tmp_path / "source"
    source.mkdir()
    git(source, "init", "-q")
    call(source, "dvc", "init", "-q")
    with (source / ".dvc" / "config").open("a") as file:
        file.write("[core]\n    remote = store\n" + section(remote.settings))
    (source / ".dvc" / "config.local").write_text(section(remote.private))
    (source / "dvc.yaml").write_text(PIPELINE)
    (source / "count").write_text("5\n")
    call(source, "dvc", "repro")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "numbers")
    pushed = outs(source)
    assert len(pushed) == 3
    call(source, "dvc", "push", "--run-cache")

    copy = cloned(source, "clone")
    call(copy, "dvc", "pull", "--run-cache")
    assert outs(copy) == pushed
    (copy / "dvc.lock").unlink()
    assert "is cached - skipping run, checking out outputs" in call(copy, "dvc", "repro")
    assert outs(copy) == pushed

    digest = md5(pushed.pop("total.txt")).hexdigest()
    remote.overwrite(f"files/md5/{digest[:2]}/{digest[2:]}", b"7\n")
    late = cloned(source, "late")
    why = "failed to pull data from the cloud - Checkout failed for following targets:\ntotal.txt\n"
    assert why in call(late, "dvc", "pull", code=1)
    assert outs(late) == pushed
