"""argv -> DVC's command, which says of its own only what failed, was restored or is unchanged:
`python -m pipeline.dvc.brief repro`.

DVC runs in this process, so that its stages have the terminal.
"""

import logging
import os
import sys

VERBS = ("collect", "train", "evaluate")
# Says that DVC is to print all that it has to say.
VERBOSE_VARIABLE = "QUATRAIN_VERBOSE"
UNCHANGED = "Stage '%s' didn't change, skipping"
RESTORED = "Stage '%s' is cached - skipping run, checking out outputs"
RUNS = "Running stage '%s':"


class Brief(logging.Filter):
    """Drops DVC's news, and prints a line of a stage, or of a model whose stages are unchanged."""

    def __init__(self) -> None:
        super().__init__()
        self.unchanged: list[str] = []

    def filter(self, record: logging.LogRecord) -> bool:
        """Returns whether DVC prints a message: a warning or an error."""
        if record.levelno >= logging.WARNING:
            self.flush()
            return True
        if record.msg in (UNCHANGED, RESTORED, RUNS):
            self.show(record.msg, str(record.args[0]) if isinstance(record.args, tuple) else "")
        return False

    def show(self, message: str, stage: str) -> None:
        verb, _, model = stage.partition("@")
        if message == UNCHANGED:
            self.unchanged.append(stage)
            if {*self.unchanged} >= {f"{each}@{model}" for each in VERBS}:
                for each in VERBS:
                    self.unchanged.remove(f"{each}@{model}")
                print(f"{model}: unchanged", flush=True)
            elif verb not in VERBS:
                self.flush()
        else:
            self.flush(model)
            if message == RESTORED:
                print(f"{stage}: restored from DVC's cache", flush=True)

    def flush(self, model: str | None = None) -> None:
        """Prints which stages are unchanged: of a model, or of all that are left."""
        for stage in [*self.unchanged]:
            if model is None or stage.endswith(f"@{model}"):
                self.unchanged.remove(stage)
                print(f"{stage}: unchanged", flush=True)


def main(arguments: list[str]) -> int:
    """Runs a command of DVC; returns its exit code."""
    from dvc.cli import main as run
    from dvc.ui import ui

    if os.environ.get(VERBOSE_VARIABLE):
        return int(run(arguments))
    brief = Brief()
    for handler in {*logging.getLogger("dvc").handlers}:
        handler.addFilter(brief)
    ui.enable = lambda: None
    try:
        return int(run(arguments))
    finally:
        brief.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
