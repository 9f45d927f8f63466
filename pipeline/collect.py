"""params -> data/MODEL: the dataset that training and evaluation read."""

import sys

from pipeline.runtime.stage import main

if __name__ == "__main__":
    sys.exit(main("collect", __doc__ or ""))
