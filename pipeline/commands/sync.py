""".state/journal -> MLflow: record what a cache restored, deliver what is left, set aliases; exit 6 until then."""

import argparse
import sys
import time
from pathlib import Path

from pipeline.commands import repro
from pipeline.runtime.errors import ConfigError
from pipeline.tracking import backfill, model_aliases
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal, redact
from pipeline.tracking.shipper import resolve_uri
from pipeline.tracking.store import Unreachable, reason_of
from quatrain.registry import MODELS

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
        return (
            f"{self.name}: {sent}"
            if self.left is None
            else f"{self.name}: {sent}, the rest is pending: {self.left}"
        )


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


def journals_of(root: Path) -> list[Path]:
    """Folders of all journals of a checkout and its presets."""
    runs = (".state/journal/*/journal.jsonl", ".presets/*/.state/journal/*/journal.jsonl")
    return sorted(path.parent for pattern in runs for path in root.glob(pattern))


def workspaces(root: Path) -> dict[str, Path]:
    """preset -> where it was run, as far as it was."""
    presets = {
        path.name: path
        for path in sorted(root.glob(".presets/*"))
        if (path / "params.yaml").is_file()
    }
    return ({"default": root} if (root / "params.yaml").is_file() else {}) | presets


def catch_up(root: Path) -> int:
    """Record what DVC restored: the first exit code that is not 0."""
    codes = []
    for preset, work in workspaces(root).items():
        try:
            codes.append(backfill.catch_up(work, list(MODELS), repro.environment(root, work)))
        except ConfigError as error:
            what = "what a cache restored there is not recorded"
            print(f"sync: preset {preset}: {error}; {what} [exit 2]", file=sys.stderr)
            codes.append(2)
    return next((code for code in codes if code), 0)


def crown(root: Path) -> str | None:
    """Set the aliases of registered models; why it could not be done, if so."""
    try:
        for preset, work in workspaces(root).items():
            aliases = model_aliases.wanted(root, work, preset, list(MODELS))
            for line in model_aliases.crown(root, aliases, anew=True):
                print(line)
    except Exception as error:  # of whatever kind: the runs have arrived
        return reason_of(error, resolve_uri(root))
    return None


def sync(root: Path, wait_seconds: float) -> int:
    """The exit code of all three acts; one that fails keeps no other from being tried."""
    uri, code = resolve_uri(root), catch_up(root)
    parcels = [Parcel(folder, uri) for folder in journals_of(root)]
    left = deliver(parcels, wait_seconds)
    for parcel in parcels:
        print(parcel.told())
    sent = f"{sum(p.metrics for p in parcels):,} metrics and {sum(p.files for p in parcels)} files sent"
    print(
        f"{len(parcels) - len(left)} of {len(parcels)} journals are complete at {redact(uri)}; {sent}"
    )
    why = f"{len(left)} journals are pending: {left[0].left}" if left else None
    if not left and (reason := crown(root)):
        why = f"the registry's aliases are pending: {reason}"
    if why:
        print(f"sync: {why}; run `make sync` when that is mended [exit 6]", file=sys.stderr)
        return 6
    return code


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m pipeline.commands.sync", description=__doc__)
    parser.add_argument(
        "--wait", type=float, default=20.0, metavar="SECONDS", help="keep trying for so long (20)"
    )
    wait_seconds = parser.parse_args(argv).wait
    try:
        return sync(Path.cwd(), wait_seconds)
    except ConfigError as error:
        print(f"sync: {error} [exit 2]", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "sync: interrupted; what arrived is noted, run `make sync` again [exit 130]",
            file=sys.stderr,
        )
        return 130


if __name__ == "__main__":
    sys.exit(main())
