"""a stage's journal -> MLflow, by a thread that the stage waits for only briefly at its end."""

import threading
import time

from pipeline.runtime import console
from pipeline.runtime.redaction import shown
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal
from pipeline.tracking.store import PATIENCE_SECONDS, reason_of

POLL_SECONDS = 0.5
LONGEST_PAUSE = 600.0
# Delivery starts with the first record, or after this time: importing mlflow delays the work.
LATEST_SECONDS = 30.0


class Shipper:
    """Delivers a journal while it is being written, from a daemon thread."""

    def __init__(
        self,
        journal: Journal,
        uri: str,
        wait_seconds: float = 30.0,
        retry_seconds: float = 60.0,
        latest_seconds: float = 0.0,
    ) -> None:
        self._journal = journal
        self._uri = uri
        self._latest_seconds = latest_seconds
        self._wait_seconds = wait_seconds
        self._retry_seconds = retry_seconds
        self._delivery = Delivery(journal, uri)
        self._reason = "no answer yet"
        self._woken = threading.Event()
        self._finishing = threading.Event()
        self._settled = threading.Event()
        self._delivered = False
        threading.Thread(target=self._run, name="tracking", daemon=True).start()

    def wake(self) -> None:
        self._woken.set()

    def finish(self) -> bool:
        """Returns whether the store has the whole journal; call it after the last line is written.

        An attempt that was in progress and failed is repeated once: a server may be back by now.
        Waits `wait_seconds` while calls are answered, and PATIENCE_SECONDS for a call that is not.
        Prints one line to stderr about what is left and how to deliver it.
        """
        self._finishing.set()
        self.wake()
        started = time.monotonic()
        while not self._settled.wait(0.02):
            patient_until = max(started + PATIENCE_SECONDS, self._delivery.patient_until)
            if time.monotonic() > min(started + self._wait_seconds, patient_until):
                break
        if self._delivered:
            return True
        metrics, files = self._delivery.pending()
        console.info(
            f"warning: tracking: {metrics:,} metrics and {files} files of "
            f"{self._journal.folder.name} are not yet at {shown(self._uri)} ({self._reason}); "
            "they are kept: `make sync` sends them"
        )
        return False

    def _run(self) -> None:
        pause = self._retry_seconds
        self._woken.wait(self._latest_seconds)
        while not self._settled.is_set():
            was_finishing = self._finishing.is_set()
            drained = self._drain()
            if was_finishing:
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
        """Delivers all there is; any failure is kept for `finish`, because training goes on."""
        try:
            while self._delivery.step():
                pass
        except Exception as error:
            self._reason = reason_of(error, self._uri)
            return False
        return True
