"""The outside: disk, clock, argv, MLflow, DVC and signals, one verb per file."""

import sys
from pathlib import Path
from types import TracebackType

# The inside of this very copy of the code: `dvc exp run --temp` and presets run in copies.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))


def _told(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Ctrl-C before a verb has begun, while its modules are imported, is no fault that wants a traceback."""
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("interrupted by SIGINT [exit 130]\n")
    else:
        sys.__excepthook__(kind, error, trace)


if (
    sys.argv[0] == "-m"
):  # python -m pipeline.VERB, which is still looking for VERB; not where a program imports this
    sys.excepthook = _told
