"""a message -> a line for the user on stderr, without passwords and tokens.

Params, metrics and data never come here. Passwords of a tracking URI are taken out of it before
anything else (`tracking.store.resolve_uri`), so that few values are left to hide.
"""

import os
import re
import sys
from contextlib import suppress

HIDDEN = "***"
# Says to a stage how wide the terminal is that its parent shows its bar on.
COLUMNS_VARIABLE = "QUATRAIN_COLUMNS"
# Shorter values are in words that are no secret.
SHORTEST = 8
# Variables whose value is a secret; of webhooks, those whose name ends so.
NAMES = (
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCESS_KEY",
    "DATABASE_PASSWORD",
    "GH_TOKEN",
    "GITHUB_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "MYSQL_PWD",
    "PGPASSWORD",
    "RAY_AUTH_TOKEN",
    "STORE_SECRET",
)
WEBHOOKS = ("WEBHOOK", "WEBHOOK_URL")
# USER:PASSWORD@ or TOKEN@ between scheme and host.
_USERINFO = re.compile(r"(?<=://)[^\s/'\"]{1,500}@")


def redact(text: str) -> str:
    """Returns a message without the secrets of this process and without users of URLs."""
    values = {
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST and (name in NAMES or name.endswith(WEBHOOKS))
    }
    for value in sorted(values, key=len, reverse=True):
        text = text.replace(value, HIDDEN)
    return _USERINFO.sub(f"{HIDDEN}@", text)


def shown(uri: str) -> str:
    """Returns a URI without user and password."""
    return _USERINFO.sub("", uri)


def info(line: str) -> None:
    """Prints a line to stderr; a closed pipe (`make repro | tee`, then Ctrl-C) is ignored, so that
    work is saved.
    """
    # Ends the state of a bar, which the parent reads up to a carriage return.
    begin = "\r" if COLUMNS_VARIABLE in os.environ else ""
    with suppress(OSError):
        print(f"{begin}{redact(line)}", file=sys.stderr, flush=True)
