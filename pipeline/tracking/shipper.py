"""a stage's journal -> MLflow, by a thread that the stage never waits for, except for a moment at its end."""

import os
import sys
import threading
import time
from pathlib import Path

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal, redact
from pipeline.tracking.store import PATIENCE_SECONDS, database_of, reason_of

POLL_SECONDS = 0.5
LONGEST_PAUSE = 600.0
LATEST_SECONDS = 30.0
"""A run is delivered from its first record on, or after so long: importing mlflow delays the work that is not begun."""


def default_uri(root: Path) -> str:
    """The sqlite store of a checkout."""
    return f"sqlite:///{(root / '.mlflow' / 'mlflow.db').absolute()}"


def resolve_uri(root: Path) -> str:
    """MLFLOW_TRACKING_URI, else the sqlite store of the checkout.

    The checkout is DVC_ROOT if DVC runs us, else `root`: `dvc exp run --temp` has a working folder that it
    removes afterwards. A relative sqlite path is taken from there too.
    """
    checkout = Path(os.environ.get("DVC_ROOT") or root)
    uri = os.environ.get("MLFLOW_TRACKING_URI", "").strip() or default_uri(checkout)
    database = database_of(uri)
    return uri if database is None else f"sqlite:///{(checkout / database).absolute()}"


class Shipper:
    """Delivers a journal while it is being written, from a daemon thread; it begins when woken, or when told to."""

    def __init__(
        self,
        journal: Journal,
        uri: str,
        wait_seconds: float = 30.0,
        retry_seconds: float = 60.0,
        latest_seconds: float = 0.0,
    ) -> None:
        self._journal, self._uri, self._latest_seconds = journal, uri, latest_seconds
        self._wait_seconds, self._retry_seconds = wait_seconds, retry_seconds
        self._delivery = Delivery(journal, uri)
        self._reason = "no answer yet"
        self._woken, self._finishing, self._settled = (
            threading.Event(),
            threading.Event(),
            threading.Event(),
        )
        self._delivered = False
        threading.Thread(target=self._run, name="tracking", daemon=True).start()

    def wake(self) -> None:
        """Something is recorded: begin, if not yet begun."""
        self._woken.set()

    def finish(self) -> bool:
        """Whether the store has the whole journal, asked when its last line is written.

        Waits `wait_seconds` while calls are answered and PATIENCE_SECONDS for one that is not; says in one
        line on stderr what is left and how to deliver it.
        """
        self._finishing.set()
        self.wake()
        began = time.monotonic()
        while not self._settled.wait(0.02):
            patient_until = max(began + PATIENCE_SECONDS, self._delivery.patient_until)
            if time.monotonic() > min(began + self._wait_seconds, patient_until):
                break
        if self._delivered:
            return True
        metrics, files = self._delivery.pending()
        left = (
            f"{metrics:,} metrics and {files} files of {self._journal.folder.name} are not yet at"
        )
        why = f"{redact(self._uri)} ({self._reason}); they are kept: `make sync` sends them"
        print(f"warning: tracking: {left} {why}", file=sys.stderr)
        return False

    def _run(self) -> None:
        pause = self._retry_seconds
        self._woken.wait(self._latest_seconds)
        while not self._settled.is_set():
            last = self._finishing.is_set()
            drained = self._drain()
            if last or (self._finishing.is_set() and not drained):
                self._delivered = drained
                self._delivery.close()
                self._settled.set()
            elif drained:
                pause = self._retry_seconds
                self._finishing.wait(POLL_SECONDS)
            else:
                self._finishing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _drain(self) -> bool:
        try:
            while self._delivery.step():
                pass
        except (
            Exception
        ) as error:  # of whatever kind: training goes on, and the reason is told at the end
            self._reason = reason_of(error, self._uri)
            return False
        return True
