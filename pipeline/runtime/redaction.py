"""a message -> the message without passwords and tokens; params, metrics and data never come here.

First goes whatever this process knows to be secret (`known_secrets`), then whatever looks like the
address or the assignment of one. What cannot be parsed for certain is hidden whole.
"""

import re

from pipeline.runtime import known_secrets
from pipeline.runtime.known_secrets import (
    LOCAL,
    SCHEME,
    SECRET_KEY,
    SECRET_WORD,
    SHORT_KEY,
    SHOWN_KEYS,
    is_local,
)

HIDDEN = "***"
NOT_SHOWN = "(an address that is not shown)"

# Repetitions before a mark that may be missing are bounded, for a text of any length.
# Of a password with spaces: from a colon that no port follows to the last @ of the line.
_SPACED = re.compile(
    r"\b[A-Za-z][\w+.\-]{0,30}://[^\s/:\[]*:(?!\d*(?:[/?#\s,;.)'\"]|$))[^\n]*@\S*", re.MULTILINE
)
_WORD = re.compile(r"\b[A-Za-z][\w+.\-]{0,30}://\S+")
_CLOSING = "'\"`)]}>,.;:!\\"
_QUOTED = re.compile(r"(?i)\b[\w+.\-]{1,30}%3A(?:%2F|/){2}\S+")
# USER:PASSWORD@HOST; `dvc.yaml:train@allo` is a stage of DVC.
_BARE = re.compile(
    r"(?<![\w:@.\-])[^\s:@'\"`(]{0,200}:(?!(?:collect|train|evaluate)@|//|[\s*])[^\s@]{1,500}@"
    r"(?=\S{0,500}[\w\]])\S*"
)
_MEMBER = re.compile(
    rf"(?i)(['\"](?:{SECRET_KEY})['\"]\s*:\s*)('(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")"
)
_ASSIGNED = re.compile(
    rf"(?im)(?<![\w.\-])({SECRET_WORD}|(?<=[?&])(?:{SHORT_KEY}))(\s*(?:=|%3D)\s*)(?!\*\*\*)"
    r"((?:'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\")(?![^\s&;,.)\]}'\"])"
    r"|(?:[^&;\n]|[&;](?!\s|$|[\w.\-]{1,60}(?:=|%3D)))+)"
)
_HEADER = re.compile(
    r"(?i)\b(authorization['\"]?\s*[:=]\s*['\"]?(?:basic |bearer )?|bearer (?=\S{16})"
    r"|basic (?=\S*[\d=]))(?!\*\*\*)[\w\-.~+/=]{8,}"
)
_TOKEN = re.compile(
    r"(?<=/services/)T\w+/B\w+/\w+|(?<=/webhooks/)\d+/[\w\-]+|(?<=/bot)\d+:[\w\-]+"
    r"|\b(?:gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w\-]{16,}|(?:AKIA|ASIA)[A-Z0-9]{16})\b"
)
# HOST:PORT/PATH, of which each part may be missing.
_ADDRESS = re.compile(
    r"(?:[\w.\-]*|\[[0-9A-Fa-f:.]+\](?=[:/]|$))(?::\d{0,5})?(?:/[^?#@]*)?", re.DOTALL
)
_QUERY = re.compile(r"(#[\w/.\-]*)?(?:([?#;])(.*))?", re.DOTALL)
_SHOWN_VALUE = re.compile(r"[\w .\-]{1,40}")
# Databases take a password up to an @, whatever it holds, and have no @ in a path.
_DATABASES = ("postgresql", "postgres", "mysql", "mariadb", "mssql", "oracle")


def redact(text: str, *uris: str) -> str:
    """Returns a message without secrets; redacting it again changes nothing.

    uris: whose secrets it may quote, if they are in no variable of the environment.
    """
    secret = known_secrets.pattern(*uris)
    if secret is not None:
        text = secret.sub(HIDDEN, text)
    return hide_by_form(text)


def hide_by_form(text: str) -> str:
    """Returns a text without what looks like a secret, whatever this process knows."""
    for addresses in (_SPACED, _WORD):
        text = addresses.sub(_without_secrets, text)
    text = _QUOTED.sub(HIDDEN, text)
    text = _BARE.sub(HIDDEN, text)
    text = _MEMBER.sub(rf'\1"{HIDDEN}"', text)
    text = _ASSIGNED.sub(rf"\1\2{HIDDEN}", text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    return _TOKEN.sub(HIDDEN, text)


def shown(uri: str) -> str:
    """Returns what may be shown of a URI: without user, password and the values of its query.

    A URI that can be read in two ways is shown as `SCHEME://***`, and one without a scheme that is
    neither a path nor HOST:PORT as NOT_SHOWN.
    """
    parts = SCHEME.fullmatch(uri.strip())
    if parts is None:
        return _shown_without_scheme(uri.strip())
    return _shown_with_scheme(*parts.groups())


def is_readable(uri: str) -> bool:
    """Returns whether all parsers take the same part of a URI for its host and path."""
    if re.match("(?i)(?:sqlite|file):///", uri):
        return True
    return shown(uri) != NOT_SHOWN and HIDDEN not in re.split(r"[?#]", shown(uri))[0]


def has_secret(uri: str) -> bool:
    """Returns whether a URI has a user, a password or a key, or may have one."""
    address = re.split(r"[?#]", uri)[0]
    is_assigned = re.search(rf"(?i)[?&;#](?:{SECRET_KEY})=", uri)
    return bool(is_assigned) or shown(address) != address


def _without_secrets(match: re.Match[str]) -> str:
    uri = match[0].rstrip(_CLOSING)
    parts = SCHEME.fullmatch(uri)
    visible = uri if parts is None else _shown_with_scheme(*parts.groups())
    return visible + match[0][len(uri) :]


def _shown_with_scheme(scheme: str, rest: str) -> str:
    if is_local(scheme, rest):
        path, mark, query = rest.partition("?")
        return f"{scheme}://{path}{_shown_query(mark + query)}"
    address = rest.rpartition("@")[2]
    end = re.search(r"[?#;]", address)
    before, query = (address[: end.start()], address[end.start() :]) if end else (address, "")
    if not _has_one_reading(scheme, rest) or not _ADDRESS.fullmatch(before):
        return f"{scheme}://{HIDDEN}"
    return f"{scheme}://{before}{_shown_query(query)}"


def _has_one_reading(scheme: str, rest: str) -> bool:
    """Returns whether all parsers take what follows the last @ for the host."""
    users, _, _ = rest.rpartition("@")
    if re.search(rf"(?i)[?&;#](?:{SECRET_KEY})=", users):
        return False
    authority = re.split(r"[/?#\\]", rest)[0]
    is_database = scheme.lower().partition("+")[0] in _DATABASES
    return is_database or rest.count("@") == authority.count("@")


def _shown_query(query: str) -> str:
    """Returns a query or fragment with the values of SHOWN_KEYS alone; the UI of MLflow has its
    query after `#/PAGE`.
    """
    parts = _QUERY.fullmatch(query)
    if parts is None:
        return f"?{HIDDEN}"
    page, mark, assignments = (part or "" for part in parts.groups())
    return f"{page}{mark}{'&'.join(map(_shown_part, re.split('[&;]', assignments)))}"


def _shown_part(part: str) -> str:
    name, assigned, value = part.partition("=")
    if name.lower() in SHOWN_KEYS and _SHOWN_VALUE.fullmatch(value):
        return part
    is_secret = re.fullmatch(f"(?i:{SECRET_WORD})", name)
    return f"{name}={HIDDEN}" if assigned and is_secret else HIDDEN if part else ""


def _shown_without_scheme(text: str) -> str:
    users, at, address = text.rpartition("@")
    is_path = text.startswith(("/", "./", "../", "~")) and ":" not in users
    is_host = re.fullmatch(r"[\w.\-]+(?::\d{1,5})?(?:/[^:?#=@]*)?", text)
    is_git = re.fullmatch(r"git@[\w.\-]+:[\w./~\-]*", text)
    is_file = not at and text.lower().startswith(tuple(f"{name}:" for name in LOCAL))
    if is_path or is_host or is_git or is_file or not text:
        return text
    if at and address and "=" not in text and _ADDRESS.fullmatch(address):
        return f"{HIDDEN}@{address}"
    return NOT_SHOWN
