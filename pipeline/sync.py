""".state/journal -> MLflow: deliver what the stages could not; exit 6 while something is left."""

import argparse
import sys
import time
from pathlib import Path

from pipeline.delivery import Delivery
from pipeline.journal import Journal, redact
from pipeline.store import Unreachable, reason_of
from pipeline.tracking import resolve_uri

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0


class Parcel:
    """A journal on its way; `left` says why it has not arrived."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.name, self._uri = folder.name, uri
        self.left: str | None = "not tried"
        self.metrics = self.files = 0
        self._folder = folder

    def send(self) -> bool:
        """Deliver what the store takes; False where nobody is there, so that the next one need not be tried."""
        self.left, gone = None, False
        delivery = None
        try:
            journal = Journal(self._folder)
            if journal.header is not None:
                self.name = f"{self._folder.name} ({journal.header.run_name}, key {journal.header.run_key[:12]})"
            delivery = Delivery(journal, self._uri)
            while delivery.step():
                pass
        except Exception as error:  # of whatever kind: the other journals are sent all the same
            self.left, gone = reason_of(error, self._uri), isinstance(error, Unreachable)
        if delivery is not None:
            self.metrics += delivery.metrics
            self.files += delivery.artifacts
            delivery.close()
        return not gone

    def told(self) -> str:
        """One line for a person."""
        sent = f"{self.metrics:,} metrics and {self.files} files sent"
        return f"{self.name}: {sent}" if self.left is None else f"{self.name}: {sent}, the rest is pending: {self.left}"


def deliver(parcels: list[Parcel], wait_seconds: float) -> list[Parcel]:
    """Those that are left after trying, with growing pauses, for about `wait_seconds`."""
    end, pause = time.monotonic() + wait_seconds, FIRST_PAUSE
    while True:
        for parcel in parcels:
            if not parcel.send():
                break
        parcels = [parcel for parcel in parcels if parcel.left is not None]
        if not parcels or time.monotonic() + pause > end:
            return parcels
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.sync", description=__doc__)
    parser.add_argument("--wait", type=float, default=20.0, metavar="SECONDS", help="keep trying for so long (20)")
    wait_seconds = parser.parse_args(argv).wait
    uri = resolve_uri(Path.cwd())
    runs = (".state/journal/*/journal.jsonl", ".presets/*/.state/journal/*/journal.jsonl")
    found = sorted(path for pattern in runs for path in Path.cwd().glob(pattern))
    parcels = [Parcel(path.parent, uri) for path in found]
    try:
        left = deliver(parcels, wait_seconds)
    except KeyboardInterrupt:
        print("sync: interrupted; what arrived is noted, run `make sync` again [exit 130]", file=sys.stderr)
        return 130
    for parcel in parcels:
        print(parcel.told())
    sent = f"{sum(p.metrics for p in parcels):,} metrics and {sum(p.files for p in parcels)} files sent"
    print(f"{len(parcels) - len(left)} of {len(parcels)} journals are complete at {redact(uri)}; {sent}")
    if left:
        why = f"{len(left)} journals are pending: {left[0].left}; run `make sync` when that is mended"
        print(f"sync: {why} [exit 6]", file=sys.stderr)
    return 6 if left else 0


if __name__ == "__main__":
    sys.exit(main())
