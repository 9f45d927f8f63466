"""URIs with a secret, by form and generated: what a user may write in MLFLOW_TRACKING_URI, in a
remote of git or DVC, in a proxy or for a sweep's storage.
"""

import random
import re
import string
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import quote, unquote

from tests.campaign.promises import broken

# Shorter parts are not hidden where a library quotes them alone.
SHORTEST = 8
SPECIAL = "/?#@:% \"'\\&=;,+~!$[]{}éß€"
SCHEMES = (
    *("http", "https", "HTTP", "postgresql", "postgresql+psycopg", "mysql+pymysql", "mssql+pyodbc"),
    *("oracle", "s3", "gs", "ssh", "ftp", "redis", "databricks", "git+https", "foo", "x-y.z"),
)
USERS = ("u", "quatrain", "a.b", "user%40org")
HOSTS = ("127.0.0.1:1", "127.0.0.1", "db.invalid:5432", "[::1]:1")
KEYS = (
    *("password", "sslpassword", "access_token", "token", "api_key", "apikey", "secret", "sig"),
    *(
        "X-Amz-Signature",
        "X-Amz-Security-Token",
        "sslkey",
        "passwd",
        "client_secret",
        "auth",
        "pwd",
    ),
)

# What stands for user, password, host and key.
FORMS = {
    "password": "{scheme}://{user}:{secret}@{host}/db",
    "no path": "{scheme}://{user}:{secret}@{host}",
    "token": "{scheme}://{secret}@{host}/db",
    "token and empty password": "{scheme}://{secret}:@{host}/db",
    "empty user": "{scheme}://:{secret}@{host}/db",
    "query": "{scheme}://{host}/db?{key}={secret}",
    "second of the query": "{scheme}://{host}/db?sslmode=require&{key}={secret}",
    "password and query": "{scheme}://{user}:{secret}@{host}/db?{key}={secret}",
    "fragment": "{scheme}://{host}/x#{key}={secret}",
    "no scheme": "{user}:{secret}@{host}",
    "no scheme, path": "{user}:{secret}@{host}/db",
    "no host": "{scheme}://{user}:{secret}",
    "no @": "{scheme}://{user}:x{secret}/db",
    "open bracket": "{scheme}://{user}:{secret}@[::1/db",
    "no port": "{scheme}://{user}:{secret}@127.0.0.1:port/db",
    "huge port": "{scheme}://{user}:{secret}@127.0.0.1:999999/db",
    "three slashes": "{scheme}:///{user}:{secret}@{host}/db",
    "one slash": "{scheme}:/{user}:{secret}@{host}/db",
    "no colon": "{scheme}//{user}:{secret}@{host}/db",
    "sqlite by mistake": "sqlite:///{user}:{secret}@{host}/db",
    "parameter of a path": "{scheme}://{host}/db;{key}={secret}",
    "parameters of JDBC": "jdbc:sqlserver://127.0.0.1:1;user={user};password={secret};",
    "source name in braces": "Driver={{x y}};Server=127.0.0.1;UID={user};PWD={{{secret}}};",
    "source name": "host=127.0.0.1 user={user} password={secret} dbname=db",
    "source name of ODBC": "Driver=x;Server=127.0.0.1;UID={user};PWD={secret};",
}


class Secretive(NamedTuple):
    """Holds a URI and the parts of its secret, none of which may be seen."""

    uri: str
    parts: tuple[str, ...]


def secretive(uri: str, secret: str) -> Secretive:
    parts = {
        part for text in (secret, unquote(secret)) for part in re.findall(r"[A-Za-z0-9]+", text)
    }
    return Secretive(uri, tuple(sorted(part for part in parts if len(part) >= SHORTEST)))


def table() -> Iterator[tuple[str, Secretive]]:
    """Yields each form with plain and with hostile passwords."""
    for name, form in FORMS.items():
        for kind, secret in {
            "plain": "Zq7Xv2Kp",
            "slash": "Zq7Xv2Kp/9wLm3Rt8",
            "question": "Zq7Xv2Kp?9wLm3Rt8",
            "hash": "Zq7Xv2Kp#9wLm3Rt8",
            "at": "Zq7Xv2Kp@9wLm3Rt8",
            "space": "Zq7Xv2Kp 9wLm3Rt8",
            "encoded": "Zq7Xv2Kp%2F9wLm3Rt8",
        }.items():
            secret = fitting(form, secret)
            uri = form.format(
                scheme="postgresql" if kind in ("slash", "space") else "http",
                user="u",
                secret=secret,
                host="127.0.0.1:1",
                key="sslpassword",
            )
            yield f"{name}, {kind}", secretive(uri, secret)


def generated(count: int, seed: int = 0) -> Iterator[Secretive]:
    rng = random.Random(seed)
    for _ in range(count):
        form = rng.choice(list(FORMS.values()))
        secret = fitting(form, password(rng))
        uri = form.format(
            scheme=rng.choice(SCHEMES),
            user=rng.choice(USERS),
            secret=secret,
            host=rng.choice(HOSTS),
            key=rng.choice(KEYS),
        )
        yield secretive(uri, secret)


def fitting(form: str, secret: str) -> str:
    """Returns a secret without what ends it in every reading of a form: an @ where no host follows,
    a colon where it is the user.
    """
    if "@" not in form and "=" not in form:
        return secret.replace("@", "-").replace("%40", "-")
    return secret.replace(":", "-").replace("%3A", "-") if "//{secret}" in form else secret


def password(rng: random.Random) -> str:
    """Returns up to four random words with special characters between them, perhaps encoded."""
    letters = string.ascii_letters + string.digits
    words = ["".join(rng.choices(letters, k=rng.randint(8, 12))) for _ in range(rng.randint(1, 4))]
    text = words[0]
    for word in words[1:]:
        text += "".join(rng.choices(SPECIAL, k=rng.randint(1, 2))) + word
    return rng.choice((text, text, text, quote(text), quote(text, safe="")))


def nothing_of(secret: Secretive, text: str) -> None:
    """No part of a secret is in a text, whatever its case and encoding."""
    spellings = f"{text}\n{unquote(text)}".lower()
    for part in secret.parts:
        if part.lower() in spellings:
            broken("leaked", f"{part} of {secret.uri!r} is in {text!r}")
