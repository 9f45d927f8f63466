"""journals on the disk -> MLflow, with a line about each that is not complete there yet."""

import time
from pathlib import Path

from pipeline.tracking.delivery import Delivery
from pipeline.tracking.journal import Journal
from pipeline.tracking.store import Unreachable, reason_of

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0


class JournalDelivery:
    """Delivers one journal; `pending` says why it is not complete in the store."""

    def __init__(self, folder: Path, uri: str) -> None:
        self.name = folder.name
        self.pending: str | None = "not tried"
        self.metrics = 0
        self.files = 0
        self.folder = folder
        self._uri = uri

    def send(self) -> bool:
        """Delivers what the store accepts; returns False if no server answers, so that the next is
        not tried.
        """
        self.pending = None
        is_reachable = True
        delivery = None
        try:
            journal = Journal(self.folder)
            if journal.header is not None:
                run = f"{journal.header.run_name}, key {journal.header.run_key[:12]}"
                self.name = f"{self.folder.name} ({run})"
            delivery = Delivery(journal, self._uri)
            while delivery.step():
                pass
        except Exception as error:
            # Any failure: the other journals are sent all the same.
            self.pending = reason_of(error, self._uri)
            is_reachable = not isinstance(error, Unreachable)
        finally:
            if delivery is not None:
                self.metrics += delivery.metrics
                self.files += delivery.artifacts
                delivery.close()
        return is_reachable

    def summary(self) -> str:
        text = f"{self.name}: {self.metrics:,} metrics and {self.files} files sent"
        return text if self.pending is None else f"{text}, the rest is pending: {self.pending}"


def deliver(deliveries: list[JournalDelivery], wait_seconds: float) -> list[JournalDelivery]:
    """Tries for about `wait_seconds` with growing pauses; returns those that are still pending."""
    end = time.monotonic() + wait_seconds
    pause = FIRST_PAUSE
    while True:
        for delivery in deliveries:
            if not delivery.send():
                break
        deliveries = [delivery for delivery in deliveries if delivery.pending is not None]
        if not deliveries or time.monotonic() + pause > end:
            return deliveries
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)
