"""variables of the environment, URIs -> what this process knows to be secret: the values of
variables, and the passwords of URIs in each form that a library may quote.
"""

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from urllib.parse import quote, quote_plus, unquote, unquote_plus

# Shorter values are not hidden: they are in words and numbers that are no secret.
SHORTEST = 8
# A user name that is as long may be a token.
SHORTEST_TOKEN = 16
# Names whose value is a secret, in any text, and in a query or a setting alone.
SECRET_WORD = (
    r"[\w.\-]{0,60}(?:password|passwd|passphrase|pwd|token|secret|credential|signature|api[_\-]?key"
    r"|access[_\-]?key|account[_\-]?key|connection[_\-]?string|sslkey|x-amz-)[\w.\-]{0,60}"
)
SHORT_KEY = "sig|auth|key|pass|pw"
SECRET_KEY = rf"{SECRET_WORD}|{SHORT_KEY}"
# Keys of a query that are worth showing.
SHOWN_KEYS = ("workflowtype", "sslmode", "charset", "driver", "region", "mode")
# Schemes of files on this machine: what follows three slashes is a path.
LOCAL = ("sqlite", "file")
SCHEME = re.compile(r"([A-Za-z][\w+.\-]*)://(.*)", re.DOTALL)

_SECRET_NAME = re.compile(
    r"(?i)(?:password|passwd|passphrase|token|secret|(?:^|_)(?:sas|pass|pat|auth"
    r"|webhook(?:_ur[il])?|(?:api|access|account|secret|private|application|encryption)_?key(?:_id)?)"
    r"|_pwd|_connection_string)$"
)
_URI_NAME = re.compile(r"(?i)(?:_|^)(?:ur[il]s?|(?<!no_)proxy|dsn)$")
_URI_VALUE = re.compile(r"\s*[\w+.\-]+://")
# Where a parser that takes a password for something else would cut it.
_CUTS = re.compile(r"[^\w.\-~%$]+")
# What follows the password in a query or a data source name.
_NEXT = re.compile(
    r"(?i)['\"]?(?:[&;]|\s+)(?:host|hostaddr|port|dbname|database|user|uid|server|driver|options"
    rf"|{'|'.join(SHOWN_KEYS)})\s*="
)

_learnt: set[str] = set()


def learn(*uris: str) -> None:
    """Makes the secrets of URIs known that no variable of the environment has."""
    for uri in uris:
        _learnt.update(secrets_in(uri))


def learn_settings(lines: Iterable[str]) -> None:
    """Makes the secrets of settings known: lines `NAME=VALUE` of git or DVC."""
    for line in lines:
        name, _, value = line.partition("=")
        if re.search(rf"(?i)(?:^|\.)(?:{SECRET_KEY})$", name):
            _learnt.add(value)
        elif name.endswith("url") or "://" in value:
            learn(value)


def forget() -> None:
    """Forgets what was learnt."""
    _learnt.clear()


def pattern(*further: str) -> re.Pattern[str] | None:
    """Returns what matches any secret of the environment, one that was learnt, or one of further
    URIs.
    """
    named = tuple(value for name, value in os.environ.items() if _SECRET_NAME.search(name))
    uris = tuple(
        value
        for name, value in os.environ.items()
        if value and (_URI_NAME.search(name) or _URI_VALUE.match(value))
    )
    return _pattern(named, (*uris, *further), frozenset(_learnt))


@lru_cache(maxsize=64)
def _pattern(
    named: tuple[str, ...], uris: tuple[str, ...], learnt: frozenset[str]
) -> re.Pattern[str] | None:
    exact = _alternatives(value.strip() for value in named)
    quoted = _alternatives(learnt.union(*map(secrets_in, uris)))
    parts = [*exact, *(f"(?i:{secret})" for secret in quoted)]
    return re.compile("|".join(parts)) if parts else None


def _alternatives(secrets: Iterable[str]) -> list[str]:
    """Returns patterns of secrets that are long enough, the longest first."""
    long = {secret for secret in secrets if len(secret) >= SHORTEST}
    return [re.escape(secret) for secret in sorted(long, key=lambda each: (-len(each), each))]


def is_local(scheme: str, rest: str) -> bool:
    """Returns whether a URI names a file on this machine, and not a user by mistake."""
    is_path = scheme.lower() in LOCAL and rest.startswith("/")
    return is_path and not re.search(":.*@", rest, re.DOTALL)


def secrets_in(uri: str) -> set[str]:
    """Returns all that may be secret in a URI, however it is parsed, in each form it is quoted."""
    parts = SCHEME.fullmatch(uri.strip())
    scheme, rest = ("", uri.strip()) if parts is None else parts.groups()
    if is_local(scheme, rest):
        return _forms(_in_query(rest))
    readings = {*_before_at(rest), *_in_query(rest)}
    cut = {_NEXT.split(text)[0] for text in readings}
    pieces = {piece for text in cut | {*map(unquote, cut)} for piece in _CUTS.split(text)}
    users, at, _ = rest.rpartition("@")
    headers = [users, unquote(users), f"{users}:"] if at else []
    encoded = {base64.b64encode(text.encode()).decode() for text in headers}
    return _forms(readings | pieces) | encoded


def _before_at(rest: str) -> Iterator[str]:
    """Yields passwords, and users that may be tokens, before any @ of a URI without its scheme."""
    for match in re.finditer("@", rest):
        user, _, password = rest[: match.start()].partition(":")
        yield password
        if not password or len(user) >= SHORTEST_TOKEN:
            yield user
    port = re.match(r"[^/@:\[\]]*:(?!\d*(?:[/?#]|$))", rest)
    if port and "@" not in rest:
        yield rest[port.end() :]


def _in_query(rest: str) -> Iterator[str]:
    """Yields the values of secret names in a query or a data source name, as far as they may
    reach.
    """
    for match in re.finditer(rf"(?i)(?:^|[?&;#\s])({SECRET_KEY})\s*=\s*", rest):
        value = rest[match.end() :]
        yield value
        yield from (part.strip("'\"") for part in (_NEXT.split(value)[0], value.split("&")[0]))


def _forms(secrets: Iterable[str]) -> set[str]:
    """Returns secrets raw, encoded for URIs and hosts, decoded, escaped, and with single spaces."""
    forms: set[str] = set()
    for secret in secrets:
        for text in {secret, unquote(secret), unquote_plus(secret)}:
            forms |= {text, " ".join(text.split()), repr(text)[1:-1], json.dumps(text)[1:-1]}
            for safe in ("", "/", "/:@!$&'()*+,;=", "!#$%&'()*+,/:;=?@[]~"):
                forms |= {quote(text, safe=safe), quote_plus(text, safe=safe)}
            if not text.isascii():  # as the name of a host
                forms.add(f"xn--{text.lower().encode('punycode').decode()}")
    return forms | {form.replace("\\", "\\\\") for form in forms}
