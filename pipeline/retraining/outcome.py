"""how a retraining ended -> files in .state/retrain, and back; without libraries, so that any Python can tell of it."""

import json
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.storage.atomic_write import write_together

FOLDER = Path(".state", "retrain")
FILES = OUTCOME, TITLE, BODY = "outcome.json", "title.txt", "body.md"
ISSUE = "Retraining needs attention"
"""Title of the one issue, whatever went wrong."""

Kind = Literal["unchanged", "proposed", "broken", "stopped"]


class Told(NamedTuple):
    """What a person reads first, and the rest in Markdown."""

    title: str
    body: str


class Ended(NamedTuple):
    """How a retraining ended; with a branch if there is something to merge."""

    kind: Kind
    code: int
    told: Told
    branch: str | None = None


def stopped(why: str, code: int) -> Ended:
    """Without a verdict."""
    nothing = "Nothing was promoted and no branch was pushed."
    body = f"The retraining stopped with exit code {code}:\n\n    {why}\n\n{nothing}\n"
    return Ended("stopped", code, Told(ISSUE, body))


def forget(folder: Path) -> None:
    """Remove what the last one left."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def write(folder: Path, ended: Ended) -> None:
    """Leave it for who tells of it."""
    outcome = json.dumps({"kind": ended.kind, "exit": ended.code, "branch": ended.branch})
    texts = {TITLE: f"{ended.told.title}\n", BODY: ended.told.body, OUTCOME: f"{outcome}\n"}
    write_together(folder, {name: text.encode() for name, text in texts.items()})


def read(folder: Path) -> Ended:
    """What was left; where nothing was, the retraining ended before it could."""
    if not (folder / OUTCOME).exists():
        return stopped("it was killed, interrupted or could not begin; its log says more", 1)
    found = json.loads((folder / OUTCOME).read_text())
    told = Told((folder / TITLE).read_text().strip(), (folder / BODY).read_text())
    return Ended(found["kind"], found["exit"], told, found["branch"])
