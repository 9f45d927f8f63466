"""Secrets are hidden in any text, and what is no secret stays readable."""

import io
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr

import pytest

import pipeline
from pipeline.runtime import console, known_secrets
from pipeline.runtime.redaction import (
    NOT_SHOWN,
    has_secret,
    hide_by_form,
    is_readable,
    redact,
    shown,
)
from tests.pipeline.fixture_types import Patch


@pytest.fixture(autouse=True)
def _nothing_is_learnt() -> Iterator[None]:
    yield
    known_secrets.forget()


@pytest.mark.parametrize(
    ("uri", "visible"),
    [
        ("http://u:p@ss@host:5000", "http://host:5000"),
        ("http://token@host", "http://host"),
        ("http://u:pa ss@host/x", "http://host/x"),
        ("http://[::1]:5000/x", "http://[::1]:5000/x"),
        ("http://[::1:5000/x", "http://***"),
        ("http://u:a/b@host:5000", "http://***"),
        ("http://host:5000/path@2/x", "http://***"),
        ("http://u:word/", "http://***"),
        ("postgresql://u:a/b?c@host:5432/db", "postgresql://host:5432/db"),
        ("postgresql+psycopg://u:a#b@host/db", "postgresql+psycopg://host/db"),
        (
            "postgresql://host/db?user=u&sslpassword=p",
            "postgresql://host/db?***&sslpassword=***",
        ),
        ("postgresql://host/db?password=a@b", "postgresql://***"),
        ("postgresql://host/db?sslmode=require", "postgresql://host/db?sslmode=require"),
        ("http://host/x?token", "http://host/x?***"),
        ("http://host/#access_token=abc", "http://host/#access_token=***"),
        ("sqlite:////tmp/a@b/mlflow.db", "sqlite:////tmp/a@b/mlflow.db"),
        ("sqlite:///u:word@host/db", "sqlite://***"),
        ("s3://bucket/folder", "s3://bucket/folder"),
        ("s3://key:word@bucket/folder", "s3://bucket/folder"),
        ("git@github.com:org/x.git", "git@github.com:org/x.git"),
        ("user:word@host:5000", "***@host:5000"),
        ("user:word", NOT_SHOWN),
        ("host=h password=word", NOT_SHOWN),
        ("host:5000", "host:5000"),
        ("/srv/git/a@b.git", "/srv/git/a@b.git"),
        ("http://host/x;password=word", "http://host/x;password=***"),
        ("jdbc:sqlserver://host;user=u;password=a@b", NOT_SHOWN),
        ("mssql://host;password=a@b", "mssql://***"),
        ("", ""),
    ],
)
def test_a_uri_is_shown_without_what_may_be_secret(uri: str, visible: str):
    assert shown(uri) == visible
    assert redact(visible) == visible


@pytest.mark.parametrize(
    ("text", "visible"),
    [
        ("cannot reach http://u:p@host/x, giving up", "cannot reach http://host/x, giving up"),
        ("'http://u:pa ss@host/x': refused", "'http://host/x': refused"),
        ("is at user:word@host:5000 now", "is at *** now"),
        ("connect host=h password='my word' user=u", "connect host=h password=*** user=u"),
        ("connect password=my word user=u; end", "connect password=***; end"),
        ("{'token': 'word', 'a': 1}", "{'token': \"***\", 'a': 1}"),
        ("Authorization: Basic dTpwYXNzd29yZA==", "Authorization: Basic ***"),
        ("http%3A%2F%2Fu%3Aword%40host/x", "***"),
        ("AKIAABCDEFGHIJKLMNOP is unknown", "*** is unknown"),
        ("at jdbc:sqlserver://host;password=a@@b;", "at jdbc:sqlserver://***;"),
        ("at http:/u:word@@more@host now", "at *** now"),
        ("at http://a@b.org:wo rd@host/x", "at http://host/x"),
        ("host=h password=a;b user=u; end", "host=h password=***; end"),
        ("Pwd={a;b};Server=h", "Pwd=***;Server=h"),
        ("password='a'b' user=u", "password=***"),
        ("http://host/x?pass=wo&pw=rd", "http://host/x?***&***"),
        ("POST https://host/services/T1/B2/word", "POST https://host/services/***"),
    ],
)
def test_what_looks_like_a_secret_is_hidden_in_a_text(text: str, visible: str):
    assert redact(text) == visible
    assert redact(visible) == visible


@pytest.mark.parametrize(
    "text",
    [
        "MLflow UI: http://127.0.0.1:5000/#/experiments/1/runs?workflowType=machine_learning (x)",
        "dvc.yaml:train@allo: changed",
        "[train@allo] /tmp/train@allo/x:y 10:20:30 a=1, seed=3, keys=5; basic training",
        "sync: the tracking URI can be read in several ways; percent-encode / ? # @ : and spaces",
        "pip install 'quatrain[pipeline]' (https://sqlalche.me/e/20/e3q8)",
        "see https://docs.jax.dev/en/latest/errors.html#jax.errors.Error.",
        "no baseline yet: `make promote`; s3://bucket/folder; sqlite:////tmp/a@b/mlflow.db",
    ],
)
def test_what_is_no_secret_stays(text: str):
    assert redact(text) == text


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("MLFLOW_TRACKING_PASSWORD", "wo/rd+1-long", "sent wo/rd+1-long to the host"),
        ("AWS_SECRET_ACCESS_KEY", "long/word", "key long/word"),
        ("GH_TOKEN", "some-token", "with some-token"),
        ("SLACK_WEBHOOK_URL", "https://host/some-path", "POST https://host/some-path"),
        ("MLFLOW_TRACKING_URI", "postgresql://u:word%20wordy@host/db", "port 'word wordy'"),
        ("https_proxy", "u:longword@proxy:3128", "proxy said longword"),
        ("MLFLOW_TRACKING_URI", "http://u:p@longword@host", "cannot resolve longword@host"),
        ("PIP_INDEX_URL", "http://u:word@host", "dTp3b3Jk"),
    ],
)
def test_secrets_of_the_environment_are_hidden_wherever_they_are_quoted(
    monkeypatch: Patch, name: str, value: str, said: str
):
    assert redact(said) == said
    monkeypatch.setenv(name, value)
    hidden = redact(said)
    assert "***" in hidden
    assert not any(word in hidden for word in ("word", "wo/rd", "some-", "dTp3"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TOKENIZERS_PARALLELISM", "false"),
        ("PWD", "/work/quatrain"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "/work/key.json"),
        ("no_proxy", "localhost,::1"),
        ("MLFLOW_TRACKING_URI", "sqlite:////work/false/mlflow.db"),
        ("API_KEY", "grid"),
        ("DB_PASSWORD", "0000"),
        ("MLFLOW_TRACKING_URI", "postgresql://u:grid@host/db"),
        ("MLFLOW_TRACKING_PASSWORD", "LOCALHOST"),
    ],
)
def test_what_is_no_secret_or_too_short_hides_nothing(monkeypatch: Patch, name: str, value: str):
    monkeypatch.setenv(name, value)
    text = "false /work/quatrain/key.json localhost mlflow.db layout gridroom score 1.0000"
    assert redact(text) == text


def test_settings_of_dvc_and_git_are_learnt():
    lines = {"remote.a.url=s3://bucket/x", "remote.b.secret_access_key=longword"}
    lines |= {"core.remote=store", "remote.origin.url=https://long/token@host/x"}
    known_secrets.learn_settings(lines)
    said = "s3://bucket/x store longword long/token"
    assert redact(said) == "s3://bucket/x store *** ***"


@pytest.mark.parametrize(
    ("uri", "readable", "secret"),
    [
        ("http://u:word@host:5000", True, True),
        ("postgresql://u:a/b@host/db", True, True),
        ("postgresql://host/db?password=word", True, True),
        ("s3://bucket/x?endpoint_override=localhost%3A9000&scheme=http", True, False),
        ("/tmp/folder", True, False),
        ("u:word@host", False, True),
        ("http://u:a/b@host", False, True),
    ],
)
def test_a_uri_is_readable_if_its_host_is_certain(uri: str, readable: bool, secret: bool):
    assert (is_readable(uri), has_secret(uri)) == (readable, secret)


def test_all_that_is_printed_passes_here(capsys: pytest.CaptureFixture[str]):
    streams = sys.stdout, sys.stderr
    with console.redacted():
        sys.stdout.write("at http://u:word@host/x\n")
        sys.stderr.writelines(["token=word\n"])
        assert sys.stdout.encoding == streams[0].encoding
    assert (sys.stdout, sys.stderr) == streams
    console.info("password=word")
    captured = capsys.readouterr()
    assert captured.out == "at http://host/x\n"
    assert captured.err == "token=***\npassword=***\n"


def test_a_traceback_is_printed_without_secrets():
    with redirect_stderr(io.StringIO()) as said:
        error = ValueError("no http://u:word@host")
        pipeline._report_interrupt(ValueError, error, None)
    assert said.getvalue() == "ValueError: no http://host\n"


@pytest.mark.parametrize("part", ["[", "a.", "=", "\\", "password", "a:", "a@", "a://", "%3A", "'"])
def test_a_long_text_without_an_end_of_anything_is_read_once(part: str):
    """A pattern that begins anew at each character would take minutes."""
    text = part * (400_000 // len(part))
    assert "hunter22" not in hide_by_form(f"{text} http://user:hunter22@host")
