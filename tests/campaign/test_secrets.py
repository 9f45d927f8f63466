"""No password and no token of an address is said or stored, however it is written or quoted."""

import io
import json
import logging
import os
import shutil
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote, urlsplit

import pytest
import requests
import sqlalchemy
import urllib3.util

from pipeline.runtime import command, console, known_secrets
from pipeline.runtime.redaction import redact, shown
from pipeline.scaling.snapshots import Storage
from pipeline.tracking import origin
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Header, Journal
from pipeline.tracking.store import check_reachable, reason_of
from tests.campaign.promises import TRACE, broken, run
from tests.campaign.secret_uris import Secretive, generated, nothing_of, table
from tests.conftest import ROOT
from tests.pipeline.fixture_types import Patch

GENERATED = 10_000
GENERATED_QUICKLY = 150
# Every so many-th generated URI is also written to the disk.
STORED = 50
HEADER = Header("k1", "quatrain", "run", {}, {})


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: Patch) -> Iterator[None]:
    """Quotes what it was asked for, as libraries do, and answers nothing."""

    def fails(*place: object, **_: object) -> NoReturn:
        raise OSError(f"cannot reach {place}")

    monkeypatch.setattr(socket, "getaddrinfo", fails)
    monkeypatch.setattr(socket, "create_connection", fails)
    yield
    known_secrets.forget()


def quoted_by(work: Callable[[], object]) -> str:
    """Returns what a library says of a URI: its error, or all that it read."""
    try:
        return repr(work())
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def read_by_urllib(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts} {parts.hostname} {quoted_by(lambda: parts.port)}"


def read_by_sqlalchemy(uri: str) -> str:
    url = sqlalchemy.make_url(uri)
    return f"{url.username} {url.password} {url.host} {url.port} {url.database} {url.query}"


LIBRARIES: dict[str, Callable[[str], object]] = {
    "raw": str,
    "quoted": lambda uri: quote(uri, safe=""),
    "escaped": lambda uri: json.dumps({"uri": uri}),
    "urllib": read_by_urllib,
    "sqlalchemy": read_by_sqlalchemy,
    "requests": lambda uri: requests.Request("GET", uri).prepare().url,
    "urllib3": urllib3.util.parse_url,
}


def said_of(uri: str, library: str) -> str:
    return quoted_by(lambda: LIBRARIES[library](uri))


def printed(uri: str) -> str:
    """Returns what a command prints of a URI that is in no variable known to it, in all ways."""

    def work(_: command.Options) -> int:
        sys.stdout.write(f"at {shown(uri)}\n")
        console.info(f"warning: {shown(uri)}: {said_of(uri, 'requests')}")
        warnings.warn(f"refused: {said_of(uri, 'urllib')}", stacklevel=1)
        logging.getLogger("quatrain.campaign").error("no answer: %s", uri)
        raise ValueError(f"cannot open {uri}")

    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda message, *_, **__: out.write(redact(str(message)))
        try:
            command.Command("probe", "Fails.", work)([])
        except ValueError as error:
            out.write(redact(str(error)))
    return out.getvalue()


def reached(uri: str) -> str:
    try:
        check_reachable(uri)
    except Exception as error:
        return reason_of(error, uri)
    return ""


def tagged(uri: str, monkeypatch: Patch) -> str:
    monkeypatch.setattr(origin, "git", lambda *_: uri)
    return json.dumps(origin.code_tags(ROOT)["mlflow.source.git.repoURL"])


def stored(uri: str, folder: Path) -> str:
    """Returns all that a journal and the cursor of its delivery hold of a URI that a message
    quotes.
    """
    journal = Journal(folder)
    journal.begin(HEADER._replace(tags={"uri": uri}))
    journal.tags({"note": f"at {uri}"})
    journal.card("quatrain-allo", f"trained at {uri}")
    journal.close()
    Delivery(journal, uri)._keep_cursor("r", 1)
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*map(str, files), *(path.read_text() for path in files)])


CHANNELS = ("shown", "libraries", "reasons", "printed", "reached", "tagged", "stored", "storage")


def output(channel: str, uri: str, folder: Path, monkeypatch: Patch) -> str:
    match channel:
        case "shown":
            return shown(uri)
        case "libraries":
            return "\n".join(redact(said_of(uri, name)) for name in LIBRARIES)
        case "reasons":
            errors = [ValueError(said_of(uri, name)) for name in LIBRARIES]
            return "\n".join(reason_of(error, uri) for error in errors)
        case "printed":
            return printed(uri)
        case "reached":
            return reached(uri)
        case "tagged":
            return tagged(uri, monkeypatch)
        case "stored":
            return stored(uri, folder)
        case _:
            return str(Storage(uri, None, "").failed(OSError(f"no bucket at {uri}")))


@pytest.mark.parametrize("channel", CHANNELS)
@pytest.mark.parametrize("secret", [pytest.param(each, id=name) for name, each in table()])
def test_a_secret_is_in_no_output(
    secret: Secretive, channel: str, tmp_path: Path, monkeypatch: Patch
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", secret.uri)
    nothing_of(secret, output(channel, secret.uri, tmp_path, monkeypatch))


@pytest.mark.parametrize("secret", [pytest.param(each, id=name) for name, each in table()])
def test_an_address_is_shown_without_its_secret_whoever_it_belongs_to(
    secret: Secretive, tmp_path: Path, monkeypatch: Patch
):
    for channel in ("shown", "reasons", "reached", "tagged", "storage"):
        nothing_of(secret, output(channel, secret.uri, tmp_path, monkeypatch))


def search(count: int, seed: int, folder: Path, monkeypatch: Patch) -> None:
    """Sends generated URIs through all channels."""
    for number, secret in enumerate(generated(count, seed)):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", secret.uri)
        for channel in CHANNELS:
            if channel != "stored" or number % STORED == 0:
                place = folder / str(number)
                nothing_of(secret, output(channel, secret.uri, place, monkeypatch))
        shutil.rmtree(folder / str(number), ignore_errors=True)


def test_a_few_generated_uris_are_in_no_output(
    tmp_path: Path, monkeypatch: Patch, record_property: Callable[[str, object], None]
):
    record_property("generated", GENERATED_QUICKLY)
    search(GENERATED_QUICKLY, 0, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_generated_uris_are_in_no_output(
    part: int, tmp_path: Path, monkeypatch: Patch, record_property: Callable[[str, object], None]
):
    record_property("generated", GENERATED // 10)
    search(GENERATED // 10, 1 + part, tmp_path, monkeypatch)


# Real processes.

PASSWORD = "Zq7Xv2Kp9w"
ADDRESSES = {
    "database": f"postgresql://u:a/{PASSWORD}?x@127.0.0.1:1/db",
    "server": f"http://u:{PASSWORD}@127.0.0.1:1",
    "query": f"http://127.0.0.1:1/?access_token={PASSWORD}",
    "open bracket": f"http://u:{PASSWORD}@[::1/",
    "no scheme": f"u:{PASSWORD}@127.0.0.1:1",
    "unknown": f"foo://u:{PASSWORD}@127.0.0.1/x",
    "a file by mistake": f"sqlite:///u:{PASSWORD}@127.0.0.1/db",
}


def searched(folder: Path, said: str) -> None:
    """Neither what was said nor any file or name in a folder has the password."""
    secret = Secretive("the address", (PASSWORD,))
    nothing_of(secret, said)
    for path in folder.rglob("*"):
        nothing_of(secret, str(path.relative_to(folder)))
        if path.is_file() and path.relative_to(folder).parts[0] != ".git":
            nothing_of(secret, path.read_bytes().decode("utf-8", "replace"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """Files that stages and commands need, and a journal that waits for a store."""
    for name in ("params.yaml", "dvc.yaml", ".gitignore"):
        shutil.copy(ROOT / name, tmp_path)
    for name in ("inputs", "baselines", "presets"):
        shutil.copytree(ROOT / name, tmp_path / name)
    journal = Journal(tmp_path / ".state" / "journal" / "train@allo-1")
    journal.begin(HEADER)
    journal.metrics([("train/loss", 1, 0.5)])
    journal.end("FINISHED")
    journal.close()
    return tmp_path


COMMANDS = {
    "sync": ("pipeline.commands.sync", "--wait", "0"),
    "ui": ("pipeline.commands.ui", "--port", "5987"),
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("address", ADDRESSES)
def test_no_process_says_or_stores_a_password(address: str, command: str, workspace: Path):
    environment = os.environ | {"MLFLOW_TRACKING_URI": ADDRESSES[address]}
    arguments = (sys.executable, "-m", *COMMANDS[command])
    ended = run(*arguments, seconds=200, cwd=workspace, env=environment)
    searched(workspace, ended.said)
    if TRACE.search(ended.said):
        broken("traceback", ended.said)


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_retraining_says_nothing_of_its_remotes(address: str, workspace: Path):
    git = ("git", "-c", "user.name=t", "-c", "user.email=t@example.org")
    for arguments in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "x")):
        run(*git, *arguments, cwd=workspace)
    run(*git, "remote", "add", "origin", ADDRESSES[address], cwd=workspace)
    ended = run(
        *(sys.executable, "-m", "pipeline.commands.retrain", "--push"),
        seconds=200,
        cwd=workspace,
        env=os.environ | {"GIT_ALLOW_PROTOCOL": "http:https:file:ssh:foo:postgresql"},
    )
    searched(workspace, ended.said)
    if TRACE.search(ended.said):
        broken("traceback", ended.said)
