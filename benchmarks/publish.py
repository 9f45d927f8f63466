"""results of benchmarks -> figures, page and a run in MLflow: the end of `make bench`"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import page, records
from benchmarks.result_files import COMMANDS
from pipeline.runtime.errors import ArtifactError, LockHeld
from pipeline.tracking.journal import redact
from pipeline.tracking.store import resolve_uri
from quatrain.errors import DataError


def publish(root: Path, results: Path, names: Sequence[str] = tuple(COMMANDS)) -> None:
    """Writes the page of all results and records the measured benchmarks; prints the locations or
    the reason of a failure.
    """
    try:
        written = page.write(root, results)
        print(
            f"page: {shown(root, written[0])}; {len(written) - 1} pictures:"
            f" {shown(root, written[0].with_suffix(''))}"
        )
        if not any((results / f"{name}.json").exists() for name in names):
            return  # nothing was measured, so there is nothing to record
        name = records.record(root, results, names, written)
        print(
            f"run {name} of the experiment `{records.EXPERIMENT}`: {redact(resolve_uri(root))}"
            " (`make ui`)"
        )
    except (ArtifactError, DataError, LockHeld, OSError) as error:
        print(
            f"warning: publish: {' '.join(str(error).split())}; the results are kept in {results}",
            file=sys.stderr,
        )


def shown(root: Path, path: Path) -> str:
    return os.path.relpath(path, root)
