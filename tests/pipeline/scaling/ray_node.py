"""One node of a Ray cluster on 127.0.0.1, until it is killed: `ray start` lets none join there."""

import json
import signal
import sys

from ray._private.node import Node
from ray._private.parameter import RayParams


def main(text: str) -> None:
    options = json.loads(text)
    is_head = options.pop("head")
    Node(RayParams(**options), head=is_head, shutdown_at_exit=True, spawn_reaper=True)
    sys.stdout.write("the node is up\n")
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])
