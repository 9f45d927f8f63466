"""MLFLOW_TRACKING_URI -> the store that it names, or what is wrong with it."""

import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from pipeline.runtime.known_secrets import is_local
from quatrain.errors import ConfigError

SERVERS = ("http", "https")
DATABASES = ("postgresql", "mysql", "mssql")
# As redaction leaves it.
FORMS = (
    "http(s)://HOST:PORT, sqlite:///FILE or postgresql://HOST/DATABASE, with USER:PASSWORD@ before "
    "HOST and :PORT after it"
)
# As SQLAlchemy reads it: a database's password may hold any character but @.
_AUTHORITY = re.compile(
    r"""(?:[^:/@?\#]*(?::[^@]*)?@)?
        (?:\[(?P<address>[0-9A-Fa-f:.]+(?:%[\w.]+)?)\]|(?P<name>[^\s/:?\#\[\]@]*))
        (?::(?P<port>[^/?\#]*))?
        (?:[/?\#].*)?""",
    re.X | re.S,
)


class Server(NamedTuple):
    """Holds where a server listens; empty and None where the URI leaves that to its driver."""

    host: str
    port: int | None


def is_server(uri: str) -> bool:
    return uri.partition("://")[0] in SERVERS


def server_of(uri: str) -> Server:
    """Returns the host and port in the URI of a server or of a database on one.

    Raises:
        ValueError: they cannot be read; the message has no part of the URI.
    """
    if is_server(uri):
        uri = "://" + _authority_of_server(uri)
    authority = _AUTHORITY.fullmatch(uri.partition("://")[2])
    if authority is None:
        raise ValueError("its host cannot be read")
    port = authority["port"]
    if port is not None and not (re.fullmatch(r"[0-9]{1,5}", port) and 0 < int(port) < 2**16):
        raise ValueError("its port is not a number from 1 to 65535")
    return Server(authority["address"] or authority["name"], None if port is None else int(port))


def _authority_of_server(uri: str) -> str:
    """Returns what is before the path, as libraries for HTTP read it."""
    try:
        return urlsplit(uri).netloc.rpartition("@")[2]
    except ValueError:
        raise ValueError("its host cannot be read") from None


def check_uri(variable: str, uri: str, remedy: str = f"write {FORMS}") -> None:
    """Checks that an environment variable names a store of a kind that holds each metric once.

    Raises:
        ConfigError: it does not; the message has no part of a URI that may be a password.
    """
    problem = _problem_of(uri)
    if problem:
        raise ConfigError(f"{variable}: {problem}; {remedy}")


def _problem_of(uri: str) -> str | None:
    scheme, separator, rest = uri.partition("://")
    kind = scheme.lower().partition("+")[0]
    if not separator or kind not in (*SERVERS, *DATABASES, "sqlite"):
        return "it names no store of a known kind"
    if not all(character.isprintable() for character in uri):
        return "it has characters that cannot be printed"
    if kind == "sqlite":
        return _problem_of_sqlite(uri)
    try:
        host = server_of(uri).host
    except ValueError as error:
        return str(error)
    if kind in SERVERS and not is_server(uri):
        return "its scheme is neither http nor https"
    if kind in SERVERS and (not host or any(character.isspace() for character in rest)):
        return "it has a space or no host"
    return None


def _problem_of_sqlite(uri: str) -> str | None:
    path = uri.removeprefix("sqlite:///")
    if path in (uri, "", ":memory:") or "?" in path:
        return "it names no file; after sqlite:/// comes a path, without options"
    if not is_local("sqlite", f"/{path}"):
        return "it names a user and host, where sqlite has a path"
    if Path(unquote(path)).is_dir():
        return "its file is a folder"
    return None
