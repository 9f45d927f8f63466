"""Journals, cursors and addresses that are wrong, and what a sync of them must say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

BEGIN = {
    "kind": "begin",
    "time": 1_700_000_000_000,
    "run_key": "k1",
    "experiment": "quatrain",
    "run_name": "allo-k1",
    "params": {"a": "1"},
    "tags": {"quatrain.model": "allo"},
    "inputs": [],
    "parent": None,
}
METRICS = {"kind": "metrics", "time": 1_700_000_000_001, "rows": [["train/loss", 1, 0.5]]}
END = {"kind": "end", "status": "FINISHED", "time": 1_700_000_000_002}
VALID = (BEGIN, METRICS, END)


def journal_of(*lines: Any) -> bytes:
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def without(line: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in line.items() if field != name}


# Values that a field of another type may hold.
WRONG: tuple[Any, ...] = (None, 5, [5], {"x": 5}, True, "\ud800", 1e400)
RIGHT_BY_CHANCE = {
    ("begin", "parent", "None"),
    ("begin", "inputs", "[]"),
    ("metrics", "rows", "[]"),
    ("begin", "time", "5"),
    ("metrics", "time", "5"),
    ("end", "time", "5"),
}


def damaged_lines() -> dict[str, bytes]:
    """Journals with a line that is JSON and cannot be delivered."""
    journals: dict[str, bytes] = {}
    for position, line in enumerate(VALID):
        for name in line:
            lines: list[Any] = [*VALID]
            if (line["kind"], name) != ("begin", "parent"):
                lines[position] = without(line, name)
                journals[f"{line['kind']} without {name}"] = journal_of(*lines)
            for value in WRONG:
                if (line["kind"], name, repr(value)) not in RIGHT_BY_CHANCE:
                    lines[position] = line | {name: value}
                    journals[f"{line['kind']} {name} {value!r}"] = journal_of(*lines)
    rows: list[Any] = [
        ["x", 1],
        ["x", 1, 2, 3],
        ["x", 1.5, 2],
        ["x", True, 2],
        ["x", 2**63, 2],
        ["x", 1, "one"],
        ["x", 1, True],
        ["x", 1, None],
        ["x", 1, 10**400],
        ["../x", 1, 2],
        ["", 1, 2],
        [None, 1, 2],
        "x12",
    ]
    for row in rows:
        line = METRICS | {"rows": [row]}
        journals[f"row {str(row)[:40]}"] = journal_of(BEGIN, line, END)
    for name, line in {
        "unknown kind": {"kind": "metric"},
        "artifact outside": {"kind": "artifact", "file": "../../secret", "path": ""},
        "artifact of root": {"kind": "artifact", "file": "/etc/passwd", "path": ""},
        "artifact without file": {"kind": "artifact", "path": ""},
        "model without file": {"kind": "model", "time": 1, "name": "m"},
        "tags without tags": {"kind": "tags"},
        "card without text": {"kind": "card", "name": "m"},
        "resume without time": {"kind": "resume"},
        "a list": [],
        "a number": 5,
    }.items():
        journals[name] = journal_of(BEGIN, line, END)
    journals["no begin"] = journal_of(METRICS, END)
    journals["two runs"] = journal_of(*VALID, BEGIN | {"run_key": "k2"}, METRICS)
    journals["NUL within"] = journal_of(BEGIN) + b"\0\0\0\n" + journal_of(END)
    journals["not UTF-8"] = journal_of(BEGIN) + b'{"kind": "\xff"}\n' + journal_of(END)
    journals["UTF-16"] = journal_of(BEGIN) + json.dumps(METRICS).encode("utf-16") + b"\n{}\n"
    journals["deep"] = journal_of(BEGIN) + b"[" * 200_000 + b"\n" + journal_of(END)
    journals["digits"] = journal_of(BEGIN) + b'{"kind": ' + b"9" * 5000 + b"}\n" + journal_of(END)
    journals["two lines in one"] = journal_of(BEGIN)[:-1] + journal_of(METRICS, END)
    journals["empty line"] = journal_of(BEGIN) + b"\n" + journal_of(END)
    return journals


# Journals that are delivered: what a kill leaves, and what older versions wrote.
LEGAL = {
    "empty": b"",
    "only torn": journal_of(BEGIN)[:-5],
    "last line cut": journal_of(*VALID) + journal_of(METRICS)[:20],
    "last line without its end": journal_of(*VALID)[:-1],
    "zeros at the end": journal_of(*VALID) + b"\0" * 4096,
    "no parent": journal_of(without(BEGIN, "parent"), METRICS, END),
    "begin twice": journal_of(BEGIN, BEGIN, METRICS, END),
    "a field of a newer version": journal_of(BEGIN | {"mood": "good"}, METRICS, END),
    "2,500 rows in a line": journal_of(
        BEGIN, METRICS | {"rows": [["train/loss", step, 0.5] for step in range(2500)]}, END
    ),
    "same row twice": journal_of(BEGIN, METRICS | {"rows": METRICS["rows"] * 2}, END),  # type: ignore[operator]
    "end twice": journal_of(*VALID, END),
    "nothing but begin": journal_of(BEGIN),
    "negative step": journal_of(BEGIN, METRICS | {"rows": [["train/loss", -3, 0.5]]}, END),
}

TIMES = {
    "1969": -1,
    "1901": -(2**31) * 1000,
    "the least": -(2**63) + 1,
    "1970": 0,
    "10000": 253_402_300_800_000,
    "the most": 2**63 - 1,
}

Change = Callable[[Path], Any]


def write(content: Any) -> Change:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda path: path.write_bytes(data)


def altered(**fields: Any) -> Change:
    """Alters fields of the cursor that is there."""
    return lambda path: path.write_text(json.dumps(json.loads(path.read_bytes()) | fields))


CURSORS: dict[str, Change] = {
    "missing": lambda path: path.unlink(),
    "empty": write(b""),
    "not JSON": write(b"{"),
    "not UTF-8": write(b"\xff"),
    "NUL": write(b"\0" * 100),
    "a list": write([]),
    "a number": write(5),
    "null": write(None),
    "deep": write(b"[" * 200_000),
    "without fields": write({}),
    "another store": altered(uri="http://elsewhere"),
    "uri null": altered(uri=None),
    "other field": altered(more=1),
    "past the end": altered(offset=10**9),
    "within a line": altered(offset=7),
    "one before the end": lambda path: path.write_text(
        json.dumps((cursor := json.loads(path.read_bytes())) | {"offset": cursor["offset"] - 1})
    ),
    "negative": altered(offset=-1),
    "huge": altered(offset=10**400),
    "fraction": altered(offset=1.5),
    "offset text": altered(offset="0"),
    "offset true": altered(offset=True),
    "offset null": altered(offset=None),
    "start": altered(offset=0),
    "no run": altered(run_id=None),
    "empty run": altered(run_id=""),
    "other run": altered(run_id="0" * 32),
    "run number": altered(run_id=5),
    "run list": altered(run_id=["x"]),
    "run no ID": altered(run_id="../../x"),
    "run surrogate": altered(run_id="\ud800"),
    "long run": altered(run_id="x" * 10**5),
}
