"""outboxes of a stage -> MLflow, by a thread that the stage waits for only briefly at its end."""

import threading
import time
from collections.abc import Sequence

from pipeline.runtime import console
from pipeline.tracking.delivery import Delivery
from pipeline.tracking.outbox import Outbox
from pipeline.tracking.store import PATIENCE_SECONDS, reason_of

POLL_SECONDS = 0.5
LONGEST_PAUSE = 600.0
# Delivery starts with the first record, or after this time: importing mlflow delays the work.
LATEST_SECONDS = 30.0


class Shipper:
    """Delivers outboxes, the first of which is still being written, from a daemon thread."""

    def __init__(
        self,
        outboxes: Sequence[Outbox],
        uri: str,
        wait_seconds: float = 30.0,
        retry_seconds: float = 60.0,
        latest_seconds: float = 0.0,
    ) -> None:
        self._uri = uri
        self._latest_seconds = latest_seconds
        self._wait_seconds = wait_seconds
        self._retry_seconds = retry_seconds
        self._deliveries = [Delivery(outbox, uri) for outbox in outboxes]
        self._current = self._deliveries[0]
        self._reason = "no answer yet"
        self._woken = threading.Event()
        self._finishing = threading.Event()
        self._settled = threading.Event()
        self._delivered = False
        threading.Thread(target=self._run, name="tracking", daemon=True).start()

    def wake(self) -> None:
        self._woken.set()

    def finish(self) -> bool:
        """Returns whether the store has everything; call it after the last record.

        An attempt that was in progress and failed is repeated once: a server may be back by now.
        Waits `wait_seconds` while calls are answered, and PATIENCE_SECONDS for a call that is not.
        Prints one line to stderr about what is left and how to deliver it.
        """
        self._finishing.set()
        self.wake()
        started = time.monotonic()
        while not self._settled.wait(0.02):
            patient_until = max(started + PATIENCE_SECONDS, self._current.patient_until)
            if time.monotonic() > min(started + self._wait_seconds, patient_until):
                break
        if self._delivered:
            return True
        counts = [delivery.outbox.pending() for delivery in self._deliveries]
        metrics, files = (sum(column) for column in zip(*counts, strict=True))
        console.info(
            f"warning: tracking: {metrics:,} metrics and {files} files of "
            f"{self._deliveries[0].outbox.name} are not yet at {self._uri} "
            f"({self._reason}); they are kept: `make sync` sends them"
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
                for delivery in self._deliveries:
                    delivery.close()
                self._settled.set()
            elif drained:
                pause = self._retry_seconds
                self._finishing.wait(POLL_SECONDS)
            else:
                self._finishing.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _drain(self) -> bool:
        """Delivers all there is; any failure is kept for `finish`, because training goes on."""
        for delivery in self._deliveries:
            self._current = delivery
            error = delivery.send()
            if error is not None:
                self._reason = reason_of(error, self._uri)
                return False
        return True
