"""data/MODEL, models/MODEL -> reports/MODEL: plots, curves and scores."""

import sys

from pipeline.runtime.stage import main

if __name__ == "__main__":
    sys.exit(main("evaluate", __doc__ or ""))
