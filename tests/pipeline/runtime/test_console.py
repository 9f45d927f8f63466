"""Messages have no secrets of the environment and no users of URLs; all else stays readable."""

import io
from contextlib import redirect_stderr

import pytest

import pipeline
from pipeline.runtime import console
from pipeline.runtime.console import redact, shown
from tests.pipeline.fixture_types import Capture, Patch


def test_of_two_secrets_that_begin_alike_the_longer_is_hidden_whole(monkeypatch: Patch):
    monkeypatch.setenv("PGPASSWORD", "hunter22")
    monkeypatch.setenv("GH_TOKEN", "hunter22-and-more")
    assert redact("hunter22-and-more") == "***"


@pytest.mark.parametrize(
    ("name", "value", "text", "visible"),
    [
        ("MLFLOW_TRACKING_PASSWORD", "hunter22", "sent hunter22 there", "sent *** there"),
        ("AWS_SECRET_ACCESS_KEY", "long/word+1", "key=long/word+1", "key=***"),
        ("SLACK_WEBHOOK_URL", "https://h.org/T1/B2", "POST https://h.org/T1/B2", "POST ***"),
        ("GH_TOKEN", "hunter22", "Hunter22 HUNTER22", "Hunter22 HUNTER22"),
        ("PGPASSWORD", "gridroo", "gridroom", "gridroom"),
        ("API_KEY", "gridroom", "gridroom", "gridroom"),
        ("PGPASSWORD", "", "nothing", "nothing"),
    ],
)
def test_values_of_secret_variables_are_hidden_exactly_and_if_long_enough(
    monkeypatch: Patch, name: str, value: str, text: str, visible: str
):
    monkeypatch.setenv(name, value)
    assert redact(text) == visible


@pytest.mark.parametrize(
    ("text", "hidden", "without"),
    [
        ("at http://u:p@host/x.", "at http://***@host/x.", "at http://host/x."),
        ("'https://token@h:1'", "'https://***@h:1'", "'https://h:1'"),
        ("postgresql://u:p@ss@h/db", "postgresql://***@h/db", "postgresql://h/db"),
        ("dvc.yaml:train@allo", "dvc.yaml:train@allo", "dvc.yaml:train@allo"),
        ("git@h.org:me/x.git", "git@h.org:me/x.git", "git@h.org:me/x.git"),
        ("http://h/a@b", "http://h/a@b", "http://h/a@b"),
        ("sqlite:////tmp/a@b/m.db", "sqlite:////tmp/a@b/m.db", "sqlite:////tmp/a@b/m.db"),
    ],
)
def test_users_of_urls_are_hidden_in_messages_and_left_out_of_uris(
    text: str, hidden: str, without: str
):
    assert (redact(text), shown(text)) == (hidden, without)


def test_lines_and_tracebacks_have_no_secrets(capsys: Capture):
    console.info("at http://u:word@host")
    with redirect_stderr(io.StringIO()) as said:
        pipeline._report_interrupt(ValueError, ValueError("no http://u:word@host"), None)
    assert capsys.readouterr().err == "at http://***@host\n"
    assert said.getvalue() == "ValueError: no http://***@host\n"
