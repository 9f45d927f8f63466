"""the outcome of a retraining <-> files in .state/retrain; without libraries, so that any Python
can announce it.
"""

import json
from pathlib import Path
from typing import Literal, NamedTuple

from pipeline.runtime.redaction import redact
from quatrain.storage.atomic_write import write_together

FOLDER = Path(".state", "retrain")
OUTCOME = "outcome.json"
TITLE = "title.txt"
BODY = "body.md"
# Title of the only issue, whatever went wrong.
ISSUE = "Retraining needs attention"

Kind = Literal["unchanged", "proposed", "broken", "stopped"]


class Message(NamedTuple):
    title: str
    body: str


class Outcome(NamedTuple):
    """Holds how a retraining ended, with a branch if there is something to merge."""

    kind: Kind
    code: int
    message: Message
    branch: str | None = None


def stopped(reason: str, code: int) -> Outcome:
    return Outcome(
        "stopped",
        code,
        Message(
            ISSUE,
            f"The retraining stopped with exit code {code}:\n\n    {redact(reason)}\n\n"
            "Nothing was promoted and no branch was pushed.\n",
        ),
    )


def clear(folder: Path) -> None:
    for name in (OUTCOME, TITLE, BODY):
        (folder / name).unlink(missing_ok=True)


def write(folder: Path, result: Outcome) -> None:
    outcome = json.dumps({"kind": result.kind, "exit": result.code, "branch": result.branch})
    texts = {
        TITLE: f"{result.message.title}\n",
        BODY: result.message.body,
        OUTCOME: f"{outcome}\n",
    }
    write_together(folder, {name: text.encode() for name, text in texts.items()})


def read(folder: Path) -> Outcome:
    """Returns the stored outcome; without one, the retraining was killed or could not begin."""
    if not all((folder / name).is_file() for name in (OUTCOME, TITLE, BODY)):
        return stopped("it was killed, interrupted or could not begin; its log says more", 1)
    try:
        content = json.loads((folder / OUTCOME).read_text())
        return Outcome(
            content["kind"],
            content["exit"],
            Message((folder / TITLE).read_text().strip(), (folder / BODY).read_text()),
            content["branch"],
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return stopped(f"{OUTCOME} or its texts are damaged; its log says more", 1)
