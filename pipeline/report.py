"""judgements, plots and speed of all models -> reports/report.md and reports/report.html."""

import sys
from pathlib import Path

from pipeline.runtime.command import run_guarded
from pipeline.storage.params_file import read_params


def main() -> int:
    """Writes the report; a wrong params.yaml is refused before the work is loaded."""

    def work() -> None:
        read_params(Path.cwd())
        from pipeline.stages.report import report

        report()

    return run_guarded("report", work)


if __name__ == "__main__":
    sys.exit(main())
