"""`make bench-peers`: `python -m benchmarks.run peers`"""

import sys

from benchmarks.run import main

if __name__ == "__main__":
    sys.exit(main(["peers", *sys.argv[1:]]))
