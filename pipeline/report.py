"""scores, verdicts, plots and speed of all models -> reports/report.md and reports/report.html."""

import sys

from pipeline.runtime.stage import main_of_all

if __name__ == "__main__":
    sys.exit(main_of_all("report", __doc__ or ""))
