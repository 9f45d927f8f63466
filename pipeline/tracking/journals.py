""".state/journal of older versions -> outboxes, once: `make sync` delivers them like all others."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.runtime import console
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.records import Header
from quatrain.errors import DataError
from quatrain.storage.disk_errors import printable

JOURNALS = (".state/journal/*/", ".presets/*/.state/journal/*/", ".state/sweeps/*/journal/*/")


def import_journals(root: Path) -> None:
    """Turns each journal into an outbox beside `journal`, and removes its marker `journal.jsonl`.

    One that cannot be read stays where it is, with a line that names it.
    """
    for path in sorted(path for each in JOURNALS for path in root.glob(f"{each}journal.jsonl")):
        folder = path.parent
        outbox = Outbox(folder.parent.with_name("outbox") / f"{folder.name}.sqlite")
        try:
            for line in _lines(path):
                _add(outbox, folder, line)
            path.rename(path.with_suffix(".imported"))
        except (DataError, OSError, ValueError, TypeError, KeyError) as error:
            console.info(f"sync: {printable(path)} is left as it is ({error})")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yields what a journal holds; a kill may have cut off its last line."""
    *lines, _ = path.read_bytes().split(b"\n")
    for line in lines:
        yield json.loads(line)


def _add(outbox: Outbox, folder: Path, line: dict[str, Any]) -> None:
    match line["kind"]:
        case "begin":
            fields = {name: line.get(name) for name in Header._fields}
            outbox.begin(Header.from_json(json.dumps(fields)), line["time"])
        case "metrics":
            rows = [(name, step, float(value)) for name, step, value in line["rows"]]
            outbox.metrics(rows, line["time"])
        case "artifact" | "model" | "card":
            name = line.get("name") or f"{line['path']}/{Path(line['file']).name}".lstrip("/")
            body = line.get("text", line.get("card", ""))
            file = line.get("file")
            data = None if file is None else (folder / "artifacts" / file).read_bytes()
            outbox.put(line["kind"], name, body, data=data, time=line.get("time"))
        case "tags":
            for name, text in line["tags"].items():
                outbox.put("tag", name, text)
        case "end":
            outbox.end(line["status"], line["time"])
