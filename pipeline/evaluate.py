"""data/MODEL, models/MODEL, baselines/MODEL.json -> reports/MODEL: scores, verdict and plots."""

import sys

from pipeline.runtime.stage import main

if __name__ == "__main__":
    sys.exit(main("evaluate", __doc__ or ""))
