"""`python -m pipeline VERB` -> the exit code of the verb."""

import sys

from pipeline.cli import main

if __name__ == "__main__":
    sys.exit(main())
