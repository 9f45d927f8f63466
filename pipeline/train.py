"""data/MODEL -> models/MODEL: trains, records every yield, continues an interrupted training."""

import sys

from pipeline.runtime.stage import main

if __name__ == "__main__":
    sys.exit(main("train", __doc__ or ""))
